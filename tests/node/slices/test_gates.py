"""The gates of the fields of a slice, and what a server without them makes of it."""

from __future__ import annotations

import pytest

from dra_sdk.model.device import (
    Capacity,
    CounterConsumption,
    CounterSet,
    Device,
    DeviceTaint,
    NodeAllocatable,
    NodeSelection,
    RequestPolicy,
    ResourcePool,
)
from dra_sdk.node.slices.gates import DROPPING_GATES, dropped_fields, gates_of, samples, without_gates
from dra_sdk.node.slices.plan import PoolPlan, plan
from dra_sdk.wire.profile import GATES, ServerProfile
from dra_sdk.wire.validation.decoding import without_disabled

DEVICES = {
    "DRAPartitionableDevices": Device("d", consumes=[CounterConsumption("s", {"c": 1})]),
    "DRADeviceTaints": Device("d", taints=[DeviceTaint(key="k", effect="NoSchedule")]),
    "DRADeviceBindingConditions": Device("d", binding_conditions=["A"], binding_failure_conditions=["B"]),
    "DRAConsumableCapacity": Device(
        "d", capacity={"m": Capacity(4, RequestPolicy(default=1))}, allow_multiple_allocations=True
    ),
    "DRANodeAllocatableResources": Device("d", node_allocatable={"cpu": NodeAllocatable(multiplier=1)}),
    "DRAListTypeAttributes": Device("d", {"list": [1, 2]}),
}


def slices(*devices: Device) -> tuple[dict[str, object], ...]:
    planned = plan([ResourcePool("n", devices, [CounterSet("s", {"c": 1})])], driver="d.example.com", node_name="n")[
        "n"
    ]
    assert isinstance(planned, PoolPlan)
    return planned.slices


@pytest.mark.parametrize("gate", DEVICES)
def test_a_device_needs_the_gate_of_its_fields(gate: str) -> None:
    assert gates_of(slices(DEVICES[gate])[-1]) == {gate}


def test_devices_with_nodes_of_their_own_need_partitionable_devices() -> None:
    assert gates_of(slices(Device("d", node=NodeSelection(all_nodes=True)))[-1]) == {"DRAPartitionableDevices"}


@pytest.mark.parametrize("gate", sorted(DROPPING_GATES))
def test_what_is_kept_is_what_the_rules_of_the_release_keep(gate: str) -> None:
    """The same as `dra_sdk.wire.validation`, which has the gate of each field from the API types."""
    (*_, spec) = slices(DEVICES[gate])
    gates = {**dict.fromkeys(GATES, True), gate: False}
    meta = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "x"}}
    identity = {"driver": "d.example.com", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}
    stored = without_disabled({**meta, "spec": {**spec, **identity}}, None, ServerProfile.of("1.36", gates))["spec"]
    kept = {**without_gates(spec, {gate}), **identity}
    assert dropped_fields(kept, stored) == dropped_fields(stored, kept) == []
    assert dropped_fields({**spec, **identity}, stored)


def test_a_slice_that_loses_nothing_is_the_same_object() -> None:
    (*_, spec) = slices(DEVICES["DRADeviceTaints"])
    assert without_gates(spec, DROPPING_GATES - {"DRADeviceTaints"}) is spec


def test_few_slices_stand_for_all() -> None:
    tainted, shared = DEVICES["DRADeviceTaints"], DEVICES["DRAConsumableCapacity"]
    specs = [slices(device)[-1] for device in (Device("d"), tainted, tainted, shared, tainted, shared)]
    assert list(samples(specs)) == [1, 3]
