from __future__ import annotations

import copy
import json
import random

import pytest
import yaml

from dra_sdk.tools.scheduling.cluster.text_shapes import Filler, TextShape, is_free

UUID = "GPU-1ec2a315-fd4b-52e0-b6fb-0e620f6af0f7"
OTHER = "GPU-93a2cc05-1111-2222-3333-444444444444"


def slice_of(node: str, first: str = UUID, second: str = "GPU-00000000-0000-0000-0000-000000000002"):
    devices = [
        {"name": f"d-{index}", "attributes": {"uuid": {"string": uuid}, "model": {"string": "a"}}, "capacity": {"m": 1}}
        for index, uuid in enumerate((first, second, first))
    ]
    pool = {"name": node, "generation": 1}
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-s"},
        "spec": {"nodeName": node, "pool": pool, "devices": devices},
    }


def as_yaml(value) -> str:
    return yaml.safe_dump([value], sort_keys=True)


FORMATS = {
    "compact": (lambda value: json.dumps(value, separators=(",", ":")), TextShape.of_json),
    "indented": (lambda value: json.dumps(value, indent=4), TextShape.of_json),
    "yaml": (as_yaml, TextShape.of_yaml),
}


@pytest.fixture(params=FORMATS.values(), ids=FORMATS)
def form(request):
    return request.param


def shape_of(value, form) -> TextShape:
    write, make = form
    shape = make(write(value), value)
    assert shape is not None
    return shape


def test_another_object_of_the_shape_is_made_from_its_free_strings(form):
    shape, other = shape_of(slice_of("node-a"), form), slice_of("node-b", OTHER)
    text = "  " + form[0](other)
    end, strings = shape.match(text, 2)
    assert end == len(text)
    assert shape.fill(strings) == other
    assert set(strings) == {"node-b", "node-b-s", OTHER, "GPU-00000000-0000-0000-0000-000000000002"}


def test_what_is_equal_is_one_object(form):
    shape = shape_of(slice_of("node-a"), form)
    a, b = shape.fill(shape.strings), shape.fill(shape.strings)
    devices = a["spec"]["devices"]
    assert devices[0]["attributes"] is devices[2]["attributes"]
    assert devices[0]["attributes"] is not devices[1]["attributes"]
    assert devices[0]["capacity"] is devices[1]["capacity"] is b["spec"]["devices"][0]["capacity"]


@pytest.mark.parametrize(
    "change",
    [
        lambda obj: obj["spec"]["devices"][0].update(name="x"),
        lambda obj: obj["spec"]["devices"].pop(),
        lambda obj: obj["spec"]["devices"][0]["attributes"]["model"].update(string="b"),
        lambda obj: obj["spec"]["pool"].update(generation=2),
        lambda obj: obj["spec"].update(nodeName="node-c"),  # no longer the name of the pool
        lambda obj: obj["spec"].update(nodeName="node-a", pool={"name": "node-ab", "generation": 1}),
        lambda obj: obj["metadata"].update(name='quote"d'),
        lambda obj: obj["metadata"].update(name="back\\slash"),
        lambda obj: obj["metadata"].update(name="ü"),
        lambda obj: obj["metadata"].update(name="x" * 400),
        lambda obj: obj["metadata"].update(name=""),
        lambda obj: obj["metadata"].update(name="line\nbreak"),
        lambda obj: obj["metadata"].update(name=None),
        lambda obj: obj["metadata"].update(name=7),
        lambda obj: obj["metadata"].update(name="7"),
        lambda obj: obj["metadata"].update(name="yes"),
        lambda obj: obj["metadata"].update(name="1e3"),
        lambda obj: obj["metadata"].update(name="0x1f"),
        lambda obj: obj["metadata"].update(name="a: b"),
        lambda obj: obj["metadata"].update(name="a #b"),
    ],
)
def test_another_text_does_not_match_or_means_what_it_says(form, change):
    shape, other = shape_of(slice_of("node-a"), form), slice_of("node-a")
    change(other)
    match = shape.match(form[0](other), 0)
    assert match is None or shape.fill(match[1]) == other


@pytest.mark.parametrize(
    "name", ["yes", "null", "~", "7", "1e3", "0x1f", ".5", "2026-01-01", "a b", "- a", "'a'", "a,b"]
)
def test_plain_text_of_yaml_that_may_be_something_else_is_no_free_string(name):
    shape = shape_of(slice_of("node-a"), FORMATS["yaml"])
    text = as_yaml(slice_of("node-a")).replace("name: node-a-s", f"name: {name}")
    match = shape.match(text, 0)
    assert match is None or shape.fill(match[1]) == yaml.load(text, yaml.BaseLoader)[0] | {
        "spec": slice_of("node-a")["spec"]
    }


def test_a_text_that_ends_early_does_not_match(form):
    shape, text = shape_of(slice_of("node-a"), form), form[0](slice_of("node-b"))
    assert all(shape.match(text[:end], 0) is None for end in range(len(text)))


def test_objects_without_free_strings_have_no_shape():
    assert TextShape.of_json('{"kind": "A"}', {"kind": "A"}) is None
    assert TextShape.of_json('{"metadata": {"name": "é"}}', {"metadata": {"name": "é"}}) is None


def test_keys_that_look_like_values_are_none():
    value = {"metadata": {"name": "a", "annotations": {'x":{"name': "name", "name": '"name":"b"'}}}
    text = json.dumps(value)
    shape = TextShape.of_json(text, value)
    assert [path for path, _ in shape.slots] == [("metadata", "name")]


def test_free_strings():
    assert is_free(("metadata", "uid"), "x")
    assert is_free(("spec", "devices", 3, "attributes", "gpu.example.com/uuid", "string"), UUID)
    assert not is_free(("spec", "devices", 3, "attributes", "model", "string"), "a100")
    assert not is_free(("spec", "driver"), "gpu.example.com")


def test_a_filler_does_not_mix_up_equal_numbers_and_flags():
    value = {"a": {"x": 1, "n": "s"}, "b": {"x": True, "n": "s"}, "c": {"x": 1.0, "n": "s"}}
    filler = Filler(value, [((key, "n"), 0) for key in value])
    assert json.dumps(filler.fill(["t"])) == json.dumps(value).replace('"s"', '"t"')


def drawn(draw: random.Random, node: str, uuids: list[str]):
    """A slice whose structure depends on `draw`, and whose strings depend on the other arguments."""
    made = slice_of(node)
    count = draw.randint(1, 5)
    made["spec"]["devices"] = [
        {
            "name": f"d-{index}",
            "attributes": {
                name: draw.choice(
                    [{"string": draw.choice(uuids)}, {"int": draw.randint(0, 2)}, {"bool": draw.random() < 0.5}]
                )
                for name in draw.sample(("uuid", "parent", "pciBusID", "x"), draw.randint(1, 4))
            },
        }
        for index in range(count)
    ]
    return made


@pytest.mark.parametrize("seed", range(20))
def test_drawn_objects_are_read_as_the_parser_reads_them(form, seed):
    names = random.Random(seed)
    uuids = [f"GPU-{names.getrandbits(64):016x}" for _ in range(6)]
    first = drawn(random.Random(seed), "node-a", uuids[:3])
    shape = shape_of(first, form)
    for given in (uuids[3:], [uuids[0], uuids[0], uuids[1]], [uuids[2], uuids[1], uuids[0]]):
        other = drawn(random.Random(seed), f"node-{names.randint(0, 99)}", given)
        before = copy.deepcopy(other)
        match = shape.match(form[0](other), 0)
        # Strings that differ in the first must not be equal, but those that are equal in the first must be.
        assert match is not None
        assert json.dumps(shape.fill(match[1]), sort_keys=True) == json.dumps(before, sort_keys=True)
