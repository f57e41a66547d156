from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.conformance import inventory
from dra_sdk.tools.conformance.inventory import Slot

JSON = dict[str, Any]
POLICY = {"default": "2"}


def piece(*devices: JSON, generation: int = 1, count: int = 1, pool: str = "pool", **spec: Any) -> JSON:
    place = spec or {"nodeName": "node-1"}
    made = {"driver": "d", "pool": {"name": pool, "generation": generation, "resourceSliceCount": count}, **place}
    return {"metadata": {"name": "s"}, "spec": {**made, "devices": list(devices)}}


def names(*slices: JSON, **options: Any) -> list[str]:
    return [slot.device for slot in inventory.slots(slices, "node-1", **options)]


def test_exclusive_devices_in_order() -> None:
    assert inventory.slots([piece({"name": "a"}, {"name": "b"})], "node-1") == [Slot("pool", "a"), Slot("pool", "b")]


def test_only_the_latest_generation_counts() -> None:
    slices = [piece({"name": "old"}), piece({"name": "new"}, generation=2)]
    assert names(*slices) == ["new"]
    assert inventory.published(slices) == {("pool", "new")}


@pytest.mark.parametrize(
    ("spec", "reachable"),
    [
        ({"nodeName": "node-1"}, True),
        ({"nodeName": "node-2"}, False),
        ({"allNodes": True}, True),
        ({"nodeSelector": {"nodeSelectorTerms": []}}, True),
    ],
)
def test_devices_of_other_nodes_are_left_out(spec: JSON, reachable: bool) -> None:
    assert bool(names(piece({"name": "a"}, **spec))) is reachable


def test_each_device_may_have_its_own_node() -> None:
    near, far = {"name": "near", "nodeName": "node-1"}, {"name": "far", "nodeName": "node-2"}
    assert names(piece(near, far, perDeviceNodeSelection=True)) == ["near"]


def test_taken_tainted_and_unfit_devices_are_left_out() -> None:
    tainted = {"name": "tainted", "taints": [{"key": "k", "effect": "NoSchedule"}]}
    noted = {"name": "noted", "taints": [{"key": "k", "effect": "None"}]}
    slices = piece({"name": "taken"}, {"name": "unfit"}, tainted, noted)
    assert names(slices, busy=[("pool", "taken")], fits=lambda device: device["name"] != "unfit") == ["noted"]


def test_counters_are_spent_once() -> None:
    counters = piece(count=2)
    counters["spec"]["sharedCounters"] = [{"name": "set", "counters": {"wires": {"value": "3"}}}]
    parts = [
        {"name": name, "consumesCounters": [{"counterSet": "set", "counters": {"wires": {"value": amount}}}]}
        for name, amount in (("big", "2"), ("second", "2"), ("small", "1"))
    ]
    assert names(counters, piece(*parts, count=2)) == ["big", "small"]


def test_shares_are_as_many_as_the_capacity_allows_and_come_after_other_devices() -> None:
    spot = {
        "name": "spot",
        "allowMultipleAllocations": True,
        "capacity": {"light": {"value": "7", "requestPolicy": POLICY}},
    }
    found = inventory.slots([piece(spot, {"name": "plain"})], "node-1")
    assert [slot.device for slot in found] == ["spot", "plain", "spot", "spot"]
    assert found[0] == Slot("pool", "spot", shared=True, consumed={"light": "2"})


@pytest.mark.parametrize(
    ("capacity", "asked", "count"),
    [
        ({}, {}, inventory.MOST_SHARES),
        ({"light": {"value": "7"}}, {}, 1),
        ({"light": {"value": "7"}}, {"light": "3"}, 2),
        ({"light": {"value": "7"}, "heat": {"value": "1Gi"}}, {"light": "1", "heat": "512Mi"}, 2),
        ({"light": {"value": "0"}}, {}, inventory.MOST_SHARES),
    ],
)
def test_how_many_shares_there_are(capacity: JSON, asked: dict[str, str], count: int) -> None:
    spot = {"name": "spot", "allowMultipleAllocations": True, "capacity": capacity}
    assert len(inventory.slots([piece(spot)], "node-1", capacity=asked)) == count


def test_pools_are_whole_when_all_slices_are_there() -> None:
    assert inventory.whole([piece(count=2), piece(count=2)])
    assert not inventory.whole([piece(count=2)])
    assert not inventory.whole([piece(), piece(count=2, pool="other")])
    assert not inventory.whole([])
