from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.conformance.allocatable import (
    MAX_SHARES,
    AllocatableDevice,
    allocatable_devices,
    pools_complete,
    published_devices,
)

JSON = dict[str, Any]
POLICY = {"default": "2"}


def resource_slice(*devices: JSON, generation: int = 1, count: int = 1, pool: str = "pool", **spec: Any) -> JSON:
    place = spec or {"nodeName": "node-1"}
    made = {"driver": "d", "pool": {"name": pool, "generation": generation, "resourceSliceCount": count}, **place}
    return {"metadata": {"name": "s"}, "spec": {**made, "devices": list(devices)}}


def names(*slices: JSON, **options: Any) -> list[str]:
    return [device.device for device in allocatable_devices(slices, "node-1", **options)]


def test_devices_for_one_claim_keep_their_order() -> None:
    assert allocatable_devices([resource_slice({"name": "a"}, {"name": "b"})], "node-1") == [
        AllocatableDevice("pool", "a"),
        AllocatableDevice("pool", "b"),
    ]


def test_only_the_latest_generation_counts() -> None:
    slices = [resource_slice({"name": "old"}), resource_slice({"name": "new"}, generation=2)]
    assert names(*slices) == ["new"]
    assert published_devices(slices) == {("pool", "new")}


@pytest.mark.parametrize(
    ("spec", "usable"),
    [
        ({"nodeName": "node-1"}, True),
        ({"nodeName": "node-2"}, False),
        ({"allNodes": True}, True),
        ({"nodeSelector": {"nodeSelectorTerms": []}}, True),
    ],
)
def test_devices_of_other_nodes_are_left_out(spec: JSON, usable: bool) -> None:
    assert bool(names(resource_slice({"name": "a"}, **spec))) is usable


def test_each_device_may_have_its_own_node() -> None:
    near, far = {"name": "near", "nodeName": "node-1"}, {"name": "far", "nodeName": "node-2"}
    assert names(resource_slice(near, far, perDeviceNodeSelection=True)) == ["near"]


def test_held_tainted_and_unfit_devices_are_left_out() -> None:
    tainted = {"name": "tainted", "taints": [{"key": "k", "effect": "NoSchedule"}]}
    noted = {"name": "noted", "taints": [{"key": "k", "effect": "None"}]}
    slices = resource_slice({"name": "held"}, {"name": "unfit"}, tainted, noted)
    assert names(slices, held=[("pool", "held")], fits=lambda device: device["name"] != "unfit") == ["noted"]


def test_counters_are_consumed_once() -> None:
    counters = resource_slice(count=2)
    counters["spec"]["sharedCounters"] = [{"name": "set", "counters": {"wires": {"value": "3"}}}]
    parts = [
        {"name": name, "consumesCounters": [{"counterSet": "set", "counters": {"wires": {"value": amount}}}]}
        for name, amount in (("big", "2"), ("second", "2"), ("small", "1"))
    ]
    assert names(counters, resource_slice(*parts, count=2)) == ["big", "small"]


def test_the_capacity_limits_the_shares_which_come_after_other_devices() -> None:
    spot = {
        "name": "spot",
        "allowMultipleAllocations": True,
        "capacity": {"light": {"value": "7", "requestPolicy": POLICY}},
    }
    devices = allocatable_devices([resource_slice(spot, {"name": "plain"})], "node-1")
    assert [device.device for device in devices] == ["spot", "plain", "spot", "spot"]
    assert devices[0] == AllocatableDevice("pool", "spot", shared=True, consumed={"light": "2"})


@pytest.mark.parametrize(
    ("capacity", "requested", "count"),
    [
        ({}, {}, MAX_SHARES),
        ({"light": {"value": "7"}}, {}, 1),
        ({"light": {"value": "7"}}, {"light": "3"}, 2),
        ({"light": {"value": "7"}, "heat": {"value": "1Gi"}}, {"light": "1", "heat": "512Mi"}, 2),
        ({"light": {"value": "0"}}, {}, MAX_SHARES),
    ],
)
def test_the_number_of_shares(capacity: JSON, requested: dict[str, str], count: int) -> None:
    spot = {"name": "spot", "allowMultipleAllocations": True, "capacity": capacity}
    assert len(allocatable_devices([resource_slice(spot)], "node-1", capacity=requested)) == count


def test_pools_are_complete_when_all_slices_exist() -> None:
    assert pools_complete([resource_slice(count=2), resource_slice(count=2)])
    assert not pools_complete([resource_slice(count=2)])
    assert not pools_complete([resource_slice(), resource_slice(count=2, pool="other")])
    assert not pools_complete([])
