"""Slices whose shape says that they are valid, beside the same slices, each validated by itself."""

from __future__ import annotations

import copy
import json
import random

import pytest

from dra_sdk.tools.scheduling.cluster import ObjectSource, SnapshotReadError, read_snapshot, snapshot_reader
from dra_sdk.tools.scheduling.cluster.list_files import read_list
from dra_sdk.tools.scheduling.cluster.valid_shapes import ValidShapes
from dra_sdk.wire.documents import read_documents
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation import validate

OWNER = {"apiVersion": "v1", "kind": "Node", "name": "node-0", "uid": "uid-of-node-0", "controller": True}


def a_slice(number: int):
    node = f"node-{number}"
    uuids = [f"GPU-{number:012}", f"GPU-{number + 500:012}"]
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {"uuid": {"string": uuid}, "model": {"string": "a100"}, "index": {"int": index}},
            "capacity": {"memory": {"value": "1024Mi"}, "x": {}},
            "consumesCounters": [{"counterSet": "s", "counters": {"memory": {"value": "1Gi"}}}],
        }
        for index, uuid in enumerate(uuids)
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": f"{node}-gpu",
            "uid": f"uid-{number}",
            "generateName": f"{node}-",
            "creationTimestamp": f"2026-01-{number % 28 + 1:02}T00:00:00Z",
            "labels": {"node": node},
            "ownerReferences": [OWNER | {"name": node, "uid": f"uid-of-{node}"}],
        },
        "spec": {
            "driver": "gpu.example.com",
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "nodeName": node,
            "devices": devices,
        },
    }


def answer(read, version: str):
    """The snapshot as text, with the warnings, or the problems."""
    try:
        reading = read_snapshot([ObjectSource("file", read())], ServerProfile.of(version))
    except SnapshotReadError as error:
        return list(error.problems)
    return json.dumps([reading.snapshot.slices, reading.snapshot.nodes, reading.warnings])


def both(tmp_path, items, version: str = "1.36"):
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)
    path = tmp_path / "file"
    path.write_text(text)
    assert read_list(path, 0) is not None
    shared = answer(lambda: read_list(path, 0), version)
    return shared, answer(lambda: read_documents(text.encode(), "file"), version)


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36", "1.37"])
def test_slices_of_a_shape_are_stored_as_by_themselves(tmp_path, version):
    shared, plain = both(tmp_path, [a_slice(number) for number in range(20)], version)
    assert shared == plain


def test_only_the_first_is_validated(tmp_path, monkeypatch):
    validated = []
    monkeypatch.setattr(
        snapshot_reader,
        "validate",
        lambda obj, validate=snapshot_reader.validate, **more: validated.append(obj) or validate(obj, **more),
    )
    items = [a_slice(number) for number in range(20)]
    path = tmp_path / "file"
    path.write_text(json.dumps({"kind": "List", "items": items}))
    snapshot = read_snapshot([ObjectSource("file", read_list(path, 0))]).snapshot
    assert len(validated) == 1
    assert len(snapshot.slices) == 20
    first, second = (raw_slice["spec"]["devices"][0] for raw_slice in snapshot.slices[3:5])
    assert first["consumesCounters"] is second["consumesCounters"]


PLACES = {
    "name": ("metadata", "name"),
    "uid": ("metadata", "uid"),
    "generateName": ("metadata", "generateName"),
    "time": ("metadata", "creationTimestamp"),
    "label": ("metadata", "labels", "node"),
    "owner": ("metadata", "ownerReferences", 0, "name"),
    "owner's uid": ("metadata", "ownerReferences", 0, "uid"),
    "pool": ("spec", "pool", "name"),
    "node": ("spec", "nodeName"),
    "uuid": ("spec", "devices", 1, "attributes", "uuid", "string"),
}
STRINGS = (
    "", "a", "A", "a.b", "a/b", "a_b", "-a", "a-", "node-1-gpu", "x" * 64, "x" * 65, "x" * 254, "a b",
    "2026-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00+01:00", "2026-01-01T00:00:00.5Z",
    "node-3", "ü", "9", "a..b", "%", "'",
)  # fmt: skip


def slice_with(number: int, place: str, string: str):
    item = a_slice(number)
    *path, last = PLACES[place]
    inner = item
    for part in path:
        inner = inner[part]
    inner[last] = string
    return item


@pytest.mark.parametrize("place", PLACES)
def test_every_string_has_the_verdict_that_it_has_by_itself(tmp_path, place):
    made = [slice_with(number, place, string) for number, string in enumerate(STRINGS)]
    valid = [item for item in made if not validate(item)]
    assert valid
    for items in (made, valid):
        shared, plain = both(tmp_path, [a_slice(100), a_slice(101), *items])
        assert shared == plain


@pytest.mark.parametrize("seed", range(40))
def test_drawn_slices_have_the_verdicts_that_they_have_by_themselves(tmp_path, seed):
    draw = random.Random(seed)
    items = [a_slice(draw.randint(0, 5)) for _ in range(8)]
    for item in items:
        for place in draw.sample(sorted(PLACES), draw.randint(0, 2)):
            *path, last = PLACES[place]
            inner = item
            for part in path:
                inner = inner[part]
            inner[last] = draw.choice(STRINGS)
    shared, plain = both(tmp_path, items, draw.choice(["1.34", "1.35", "1.36", "1.37"]))
    assert shared == plain


def changed(change):
    def items():
        made = [a_slice(number) for number in range(3)]
        for raw_slice in made:
            change(raw_slice)
        return made

    return items


@pytest.mark.parametrize(
    "items",
    {
        "an invalid first": changed(lambda raw_slice: raw_slice["spec"].update(nodeName="Upper")),
        "a field that is dropped": changed(lambda raw_slice: raw_slice["spec"]["devices"][0].update(bindsToNode=True)),
        "no name": changed(lambda raw_slice: raw_slice["metadata"].pop("name")),
        "two owners": changed(
            lambda raw_slice: raw_slice["metadata"]["ownerReferences"].append(
                OWNER | {"controller": False, "name": "node-1"}
            )
        ),
        "an older version": changed(lambda raw_slice: raw_slice.update(apiVersion="resource.k8s.io/v1beta2")),
        "no kind": changed(lambda raw_slice: raw_slice.pop("kind")),
        "nulls": changed(lambda raw_slice: raw_slice["spec"].update(nodeSelector=None, allNodes=None)),
        "keys in another order": changed(
            lambda raw_slice: raw_slice.update(spec=dict(reversed(raw_slice["spec"].items())))
        ),
    }.items(),
    ids=lambda item: item[0],
)
def test_what_is_not_shared_is_read_as_before(tmp_path, items):
    shared, plain = both(tmp_path, items[1]())
    assert shared == plain


def test_objects_that_are_no_items_of_a_list_have_no_shape():
    shapes, obj = ValidShapes(ServerProfile.of("1.36")), a_slice(1)
    (document,) = read_documents(json.dumps(obj).encode(), "file")
    shapes.remember(document, obj, copy.deepcopy(obj))
    assert shapes.stored(document, obj) is None
