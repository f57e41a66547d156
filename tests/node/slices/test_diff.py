from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk.node.slices.diff import (
    Operation,
    Owner,
    PoolIdentity,
    decode_index,
    diff,
    encode_index,
    generate_name,
    index_length,
    normal,
    same,
    with_times,
)

IDENTITY = PoolIdentity("d", "p", Owner("n", "uid-1"))


def wanted(*devices: str, node: str | None = "n") -> list[dict[str, Any]]:
    nodes = {"nodeName": node} if node else {"allNodes": True}
    return [{**nodes, "devices": [{"name": name}]} for name in devices]


def name_of(operation: Operation) -> str:
    """The object's name; for a create only its beginning."""
    metadata = operation.body["metadata"]
    return str(metadata.get("name") or metadata["generateName"])


def applied(existing: list[dict[str, Any]], operations: list[Operation]) -> list[dict[str, Any]]:
    """What a server has after these operations."""
    kept = {each["metadata"]["name"]: each for each in deepcopy(existing)}
    for operation in operations:
        body = deepcopy(operation.body)
        if operation.verb == "delete":
            del kept[name_of(operation)]
        elif operation.verb == "update":
            assert name_of(operation) in kept
            kept[name_of(operation)] = body
        else:
            body["metadata"]["name"] = f"{name_of(operation)}{len(kept)}x{sum(map(ord, name_of(operation)))}"
            kept[body["metadata"]["name"]] = body
    return list(kept.values())


def verbs(operations: list[Operation]) -> list[tuple[str, int]]:
    return [(operation.verb, operation.index) for operation in operations]


def generations(existing: list[dict[str, Any]]) -> set[int]:
    return {each["spec"]["pool"]["generation"] for each in existing}


def stored(*devices: str) -> list[dict[str, Any]]:
    return applied([], diff([], wanted(*devices), IDENTITY))


def test_a_fresh_pool():
    (operation,) = diff([], wanted("a"), IDENTITY)
    assert (operation.verb, operation.index, name_of(operation)) == ("create", 0, "00000-d-n-")
    assert operation.body == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "generateName": "00000-d-n-",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "uid-1", "controller": True}],
        },
        "spec": {
            "driver": "d",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n",
            "devices": [{"name": "a"}],
        },
    }


def test_equal_is_no_operation():
    assert diff(stored("a", "b"), wanted("a", "b"), IDENTITY) == []


def test_one_change_keeps_the_generation_two_raise_it():
    existing = stored("a", "b", "c")
    one = diff(existing, wanted("a", "x", "c"), IDENTITY)
    assert verbs(one) == [("update", 1)]
    assert generations(applied(existing, one)) == {1}
    two = diff(existing, wanted("a", "x", "y"), IDENTITY)
    assert verbs(two) == [("update", 0), ("update", 1), ("update", 2)]
    assert generations(applied(existing, two)) == {2}


def test_a_missing_slice_raises_the_generation():
    existing = stored("a", "b")[1:]
    operations = diff(existing, wanted("a", "b"), IDENTITY)
    assert verbs(operations) == [("update", 1), ("create", 0)]
    assert generations(applied(existing, operations)) == {2}


def test_fewer_slices_delete_first():
    assert verbs(diff(stored("a", "b"), wanted("a"), IDENTITY)) == [("delete", -1), ("update", 0)]


def test_no_slices_wanted_deletes_all():
    assert verbs(diff(stored("a", "b"), [], IDENTITY)) == [("delete", -1), ("delete", -1)]
    assert diff([], [], IDENTITY) == []


def test_a_generation_can_be_asked_for():
    existing = stored("a")
    operations = diff(existing, wanted("a"), IDENTITY, generation=7)
    assert generations(applied(existing, operations)) == {7}
    assert diff(existing, wanted("a"), IDENTITY, generation=1) == []


@pytest.mark.parametrize("name", ["random", "000000-d-n-x", "00001-d-n-x", "0000z-d-n-x"])
def test_slices_that_cannot_be_placed_are_made_anew(name: str):
    (item,) = stored("a")
    item["metadata"]["name"] = name
    operations = diff([item], wanted("a"), IDENTITY)
    assert verbs(operations) == [("delete", -1), ("create", 0)]
    assert operations[1].body["spec"]["pool"]["generation"] == 2


def test_of_two_slices_with_one_index_the_first_by_name_stays():
    (item,) = stored("a")
    twin = deepcopy(item)
    twin["metadata"]["name"] = "00000-d-n-zzzzz"
    (operation,) = diff([twin, item], wanted("a"), IDENTITY)
    assert (operation.verb, name_of(operation)) == ("delete", "00000-d-n-zzzzz")


def test_older_generations_are_deleted():
    (old,), (new,) = stored("a"), stored("a")
    old["metadata"]["name"] = "00000-d-n-old"
    new["spec"]["pool"]["generation"] = 5
    (operation,) = diff([old, new], wanted("a"), IDENTITY)
    assert (operation.verb, name_of(operation)) == ("delete", "00000-d-n-old")


def test_the_node_of_a_slice_cannot_change():
    assert verbs(diff(stored("a"), wanted("a", node=None), IDENTITY)) == [("delete", -1), ("create", 0)]


def test_a_slice_of_an_older_owner_is_adopted():
    existing = stored("a")
    newer = PoolIdentity("d", "p", Owner("n", "uid-2"))
    (operation,) = diff(existing, wanted("a"), newer)
    assert operation.body["metadata"]["ownerReferences"][0]["uid"] == "uid-2"
    assert diff(applied(existing, [operation]), wanted("a"), newer) == []
    assert diff(existing, wanted("a"), PoolIdentity("d", "p")) == []


def test_an_update_keeps_the_metadata():
    (item,) = stored("a")
    item["metadata"] |= {"uid": "u", "resourceVersion": "9", "labels": {"x": "y"}}
    (operation,) = diff([item], wanted("b"), IDENTITY)
    assert operation.body["metadata"] == item["metadata"]


def test_a_taint_keeps_its_time_when_its_device_moves():
    taint = {"key": "k", "effect": "NoSchedule"}
    existing = stored("a", "b")
    existing[1]["spec"]["devices"][0]["taints"] = [{**taint, "timeAdded": "2026-01-01T00:00:00Z"}]
    moved = wanted("b")
    moved[0]["devices"][0]["taints"] = [taint]
    update = diff(existing, moved, IDENTITY)[-1]
    assert update.body["spec"]["devices"][0]["taints"] == [{**taint, "timeAdded": "2026-01-01T00:00:00Z"}]
    assert moved[0]["devices"][0]["taints"] == [taint]


pools = st.lists(st.sampled_from("abcdef"), max_size=5, unique=True)


@given(pools, pools, st.sets(st.integers(0, 4)))
def test_any_change_is_reached_in_one_go(before: list[str], after: list[str], lost: set[int]):
    """Whatever was there, and whatever was deleted by others: afterwards nothing is left to do."""
    existing = [each for index, each in enumerate(stored(*before)) if index not in lost]
    operations = diff(existing, wanted(*after), IDENTITY)
    result = applied(existing, operations)
    assert diff(result, wanted(*after), IDENTITY) == []
    assert sorted(device["name"] for each in result for device in each["spec"]["devices"]) == sorted(after)
    assert len(generations(result)) == (1 if after else 0)
    assert all(each["spec"]["pool"]["resourceSliceCount"] == len(after) for each in result)


def tainted(time: str | None, **more: Any) -> dict[str, Any]:
    taint = {"key": "k", "effect": "NoSchedule", **({"timeAdded": time} if time else {}), **more}
    return {"devices": [{"name": "d", "taints": [taint]}]}


@pytest.mark.parametrize(
    ("stored", "wanted", "equal"),
    [
        ({"devices": []}, {}, True),
        ({"devices": None, "nodeName": "n"}, {"nodeName": "n"}, True),
        ({"nodeName": "n"}, {"nodeName": "m"}, False),
        ({"unknownField": 1}, {}, False),
        ({"devices": [{"name": "a"}, {"name": "b"}]}, {"devices": [{"name": "b"}, {"name": "a"}]}, False),
        ({"devices": [{"name": "a", "bindsToNode": False}]}, {"devices": [{"name": "a"}]}, True),
        (
            {"devices": [{"name": "a", "attributes": {"x": {"bool": False}}}]},
            {"devices": [{"name": "a", "attributes": {"x": {"bool": True}}}]},
            False,
        ),
        (
            {"devices": [{"name": "a", "attributes": {"x": {"bool": False}}}]},
            {"devices": [{"name": "a"}]},
            False,
        ),
        (
            {"devices": [{"name": "a", "attributes": {"x": {"int": 1}}}]},
            {"devices": [{"name": "a", "attributes": {"x": {"string": "1"}}}]},
            False,
        ),
    ],
)
def test_same(stored: dict[str, Any], wanted: dict[str, Any], equal: bool):
    assert same(stored, wanted) is equal


@pytest.mark.parametrize(
    ("field", "stored", "wanted", "equal"),
    [
        ("capacity", {"m": {"value": "1024Mi"}}, {"m": {"value": "1Gi"}}, True),
        ("capacity", {"m": {"value": "1024Mi"}}, {"m": {"value": "1G"}}, False),
        ("capacity", {"m": {"value": "junk"}}, {"m": {"value": "1G"}}, False),
        (
            "capacity",
            {"m": {"value": "4", "requestPolicy": {"default": "1000m", "validValues": ["1000m", "2"]}}},
            {"m": {"value": "4", "requestPolicy": {"default": "1", "validValues": ["1", "2"]}}},
            True,
        ),
        (
            "consumesCounters",
            [{"counterSet": "s", "counters": {"value": {"value": "2000m"}}}],
            [{"counterSet": "s", "counters": {"value": {"value": "2"}}}],
            True,
        ),
        (
            "nodeAllocatableResourceMappings",
            {"cpu": {"allocationMultiplier": "1000m"}},
            {"cpu": {"allocationMultiplier": "1"}},
            True,
        ),
        ("attributes", {"value": {"string": "1000m"}}, {"value": {"string": "1"}}, False),
    ],
)
def test_quantities_in_another_form_are_equal(field: str, stored: Any, wanted: Any, equal: bool):
    assert same({"devices": [{"name": "d", field: stored}]}, {"devices": [{"name": "d", field: wanted}]}) is equal


def test_shared_counters_in_another_form_are_equal():
    stored = {"sharedCounters": [{"name": "s", "counters": {"m": {"value": "2048Mi"}}}]}
    assert same(stored, {"sharedCounters": [{"name": "s", "counters": {"m": {"value": "2Gi"}}}]})


@pytest.mark.parametrize(
    ("stored", "wanted", "equal"),
    [
        ("2026-01-01T00:00:01Z", None, True),
        (None, "2026-01-01T00:00:01Z", True),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", True),
        ("2026-01-01T00:00:01Z", "2026-01-01T01:00:02+01:00", True),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:03Z", False),
        ("2026-01-01T00:00:01Z", "never", False),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:01", False),
    ],
)
def test_taint_times(stored: str | None, wanted: str | None, equal: bool):
    assert same(tainted(stored), tainted(wanted)) is equal
    assert not same(tainted(stored), tainted(wanted, value="other"))


def test_comparing_changes_nothing():
    spec = tainted("2026-01-01T00:00:01Z")
    assert same(spec, spec)
    assert spec == tainted("2026-01-01T00:00:01Z")
    assert normal(spec) == spec


def test_taints_keep_the_time_they_have():
    wanted = [tainted(None), tainted("2026-05-05T00:00:00Z"), tainted(None, value="new")]
    filled = with_times(wanted, [tainted("2026-01-01T00:00:01Z")])
    assert filled == [tainted("2026-01-01T00:00:01Z"), tainted("2026-05-05T00:00:00Z"), tainted(None, value="new")]
    assert wanted[0] == tainted(None)
    assert with_times(wanted, []) == wanted


@given(st.integers(1, 2**24).flatmap(lambda count: st.tuples(st.just(count), st.integers(0, count - 1))))
def test_an_index_survives_its_name(pair: tuple[int, int]):
    count, index = pair
    length = index_length(count)
    assert decode_index(encode_index(index, length) + "-driver-x1y2z", length) == index


def test_names_are_ordered_as_their_indexes():
    names = [generate_name(index, 20, "d", "n") for index in range(20)]
    assert names == sorted(names)


def test_generate_name():
    assert generate_name(0, 1, "gpu.example.com", "node-1") == "00000-gpu.example.com-node-1-"
    assert generate_name(26, 2**20 + 1, "gpu.example.com", None) == "00001a-gpu.example.com-"
    assert generate_name(0, 1, "GPU.Example.com", "n") == "00000-gpu.example.com-n-"


@pytest.mark.parametrize(
    "name", ["", "00000", "0000-x", "000000-x", "0x000-x", "0000A-x", "+0000-x", "0_000-x", " 0000-x"]
)
def test_what_is_no_index(name: str):
    with pytest.raises(ValueError, match="does not begin with"):
        decode_index(name, 5)
