from __future__ import annotations

import json
import random

import pytest
import yaml

from dra_sdk.tools.scheduling.cluster import list_files
from dra_sdk.tools.scheduling.cluster.list_files import read_list
from dra_sdk.wire.documents import objects, read_documents
from tests.tools.scheduling.cluster.test_text_shapes import slice_of


def node(name: str, **labels: str):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


ITEMS = [
    node("a", zone="x"),
    *(slice_of(f"node-{index}", f"GPU-{index:020}") for index in range(12)),
    node("b", zone="y"),
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"text": 'a "b" \\ c: #d\n- e\n'}}},
    node("c", zone="z"),
]


def listed(items, **more):
    return {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}, **more}


def kubectl_yaml(value) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


FORMATS = {
    "compact": lambda value: json.dumps(value, separators=(",", ":")),
    "indented": lambda value: json.dumps(value, indent=4) + "\n",
    "yaml": kubectl_yaml,
}


@pytest.fixture(params=FORMATS.values(), ids=FORMATS)
def write(request):
    return request.param


@pytest.fixture(params=[40, 1000, 4_000_000])
def _chunks(request, monkeypatch):
    """Parts of files, so that items begin in one and end in another."""
    monkeypatch.setattr(list_files, "_CHUNK", request.param)
    monkeypatch.setattr(list_files, "_MAX_HEAD", 200 if request.param < 100_000 else 100_000)


def both(tmp_path, text: str):
    """The objects as they are read item by item, with paths and lines, and as they are read otherwise."""
    path = tmp_path / "file"
    path.write_bytes(text.encode())
    items = read_list(path, 0)
    (document,) = read_documents(text.encode(), "file")
    plain = [(place, obj, document.line(place)) for place, obj in objects(document.value)]
    if items is None:
        return None, plain
    read = [(place, obj, item.line(place)) for item in items for place, obj in objects(item.value, item.place)]
    return read, plain


@pytest.mark.usefixtures("_chunks")
def test_items_are_read_as_in_the_whole_file(tmp_path, write):
    read, plain = both(tmp_path, write(listed(ITEMS)))
    assert json.dumps(read) == json.dumps(plain)
    assert read


def test_items_of_a_shape_are_not_parsed(tmp_path, write):
    path = tmp_path / "file"
    path.write_text(write(listed(ITEMS)))
    items = read_list(path, 0)
    assert [item.shape is None for item in items].count(True) <= 4
    first, second = (items[index].value["spec"]["devices"][0] for index in (5, 6))
    assert first["capacity"] is second["capacity"]


def test_lines_inside_items(tmp_path, write):
    text = write(listed(ITEMS))
    path = tmp_path / "file"
    path.write_text(text)
    items = read_list(path, 0)
    (document,) = read_documents(text.encode(), "file")
    for index, inner in ((0, ("metadata", "labels")), (7, ("spec", "devices", 2, "attributes")), (14, ("metadata",))):
        tokens = ("items", index, *inner, "missing")
        assert items[index].line(tokens) == document.line(tokens)


def test_items_without_a_kind_have_that_of_the_list(tmp_path, write):
    bare = [{key: value for key, value in node(name).items() if key == "metadata"} for name in "abc"]
    read, plain = both(tmp_path, write(listed(bare, kind="NodeList")))
    assert read == plain
    assert read[2][1] == {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "c", "labels": {}}}


def test_lists_in_lists(tmp_path, write):
    read, plain = both(tmp_path, write(listed([listed([node("a")]), node("b"), listed([])])))
    assert read == plain
    assert [place for place, _, _ in read] == [("items", 0, "items", 0), ("items", 1)]


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "Node", "items": []}',
        '{"kind": "List", "items": {}}',
        '{"items": [1]}',
        '{"kind": "List", "items": [{"a": 1, "a": 2}]}',
        '{"kind": "List", "kind": "List", "items": []}',
        '{"kind": "List", "items": [{"a": NaN}]}',
        '{"kind": "List", "items": [{"a": 1e999}]}',
        '{"kind": "List", "items": [{"a": "\\ud800"}]}',
        '{"kind": "List", "items": [{"a": 1}],}',
        '{"kind": "List", "items": [{"a": 1},]}',
        '{"kind": "List", "items": [{"a": 1}]} {}',
        '{"kind": "List", "items": [{"a": 1}]',
        '{"kind": "List", "items": [{"a": "\u0007"}]}',
        '{"kind": "List", "items": [' + '{"a":' * 120 + "1" + "}" * 120 + "]}",
        "kind: List\nitems: []\n",
        "kind: List\nitems:\n  - a: 1\n",
        "kind: List\nitems:\n- a: 1\n---\nkind: Node\n",
        "---\nkind: List\nitems:\n- a: 1\n",
        "kind: List\nitems:\n- a: 1\nkind: List\n",
        "kind: List\nitems:\n- &x {a: 1}\n- *x\n",
        "kind: List\nitems:\n- &x {a: 1}\n- &x {a: 2}\n",
        "kind: List\nitems:\n- a: 'b\n- c'\n",
        "kind: List\nitems:\n- a: [b,\n- c]\n",
        "kind: List\nitems:\n- a: 1\n  a: 2\n",
        "kind: List\nitems:\n- a: 1\nrest\n",
        "kind: List\nitems:\n- a: 1\n... \n",
        "kind: List\nitems:\n- a: !!binary x\n",
        "a: 1\nitems:\n- a: 1\n",
        "",
        "[]",
        "{",
    ],
)
def test_other_files_are_left_to_the_reader_of_all_yaml(tmp_path, text):
    path = tmp_path / "file"
    path.write_text(text)
    assert read_list(path, 0) is None


def test_what_is_not_text_or_not_large_or_no_file_is_left_too(tmp_path):
    path = tmp_path / "file"
    path.write_text(json.dumps(listed(ITEMS)))
    assert read_list(path) is None
    assert read_list(tmp_path, 0) is None
    assert read_list(tmp_path / "missing", 0) is None
    path.write_bytes(json.dumps(listed(ITEMS)).encode("utf-16"))
    assert read_list(path, 0) is None


@pytest.mark.parametrize(
    "text",
    [
        "# comment\nkind: List\nitems:\n- a: 1\n",
        "kind: List\nitems:\n# comment\n- a: 1\n",
        "kind: List\nitems:\n- a: 1\n# comment\n- b: |+\n    x\n\n- c: >\n    y\n",
        "kind: List\nitems:\n- a: b\n   c\n- a: b\n\n- null\n- 1\n- - 2\n",
        "kind: List\nmetadata:\n  x: y\n\n  z: 1\nitems:   \n- a: é\n-   a: ü\n",
        "\ufeffkind: List\nitems:\n- a: 1\n",
        '{"kind": "List", "items": [1, null, "x", [2], {"a": "é"}], "x": {"y": [1.5, true, null]}}',
        '\ufeff {"kind": "List", "items": []}\n\n',
        '{\t"kind": "List",\r\n"items":\t[{"a"\t: "\\u00e9\\n"}]}',
    ],
)
@pytest.mark.usefixtures("_chunks")
def test_what_is_read_item_by_item_is_the_same(tmp_path, text):
    read, plain = both(tmp_path, text)
    assert read is None or json.dumps(read) == json.dumps(plain)


@pytest.mark.usefixtures("_chunks")
def test_drawn_changes_of_a_text_never_change_what_is_read(tmp_path, write):
    """Characters of the text are replaced: the file is left to the other reader, or has the same objects."""
    original = write(listed(ITEMS[:6]))
    path = tmp_path / "file"
    kept = 0
    for seed in range(50):
        draw = random.Random(seed)
        text = list(original)
        for _ in range(draw.randint(1, 3)):
            text[draw.randrange(len(text))] = draw.choice("{}[]\",:-#&*!|>'%@ \n\tax0.~\\é")
        changed = "".join(text)
        path.write_bytes(changed.encode())
        items = read_list(path, 0)
        if items is not None:
            kept += 1
            (document,) = read_documents(changed.encode(), "file")
            pairs = [located for item in items for located in objects(item.value, item.place)]
            assert json.dumps(pairs) == json.dumps(list(objects(document.value))), f"seed {seed}"
    assert 0 < kept < 50


def test_how_far_it_is(tmp_path):
    path, told = tmp_path / "file", []
    path.write_text(json.dumps(listed(ITEMS)))
    read_list(path, 0, lambda done, total: told.append((done, total)))
    assert told[-1] == (path.stat().st_size,) * 2
