"""The allocator against all upstream cases: the same devices, the same errors, the same steps of the search."""

from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.model.quantity import Quantity
from dra_sdk.tools.scheduling.allocator import (
    AllocatedState,
    AllocationError,
    Allocator,
    DeviceId,
    Inventory,
    SchedulerFeatures,
)
from tests.vectors import parameters

SHARE = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"


GATES = {
    "DRAAdminAccess": ("admin_access",),
    "DRAConsumableCapacity": ("consumable_capacity",),
    "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus": ("binding_conditions",),
    "DRADeviceTaints": ("device_taints",),
    "DRAListTypeAttributes": ("list_attributes", "list_attributes_in_selectors"),
    "DRAPartitionableDevices": ("partitionable_devices",),
    "DRAPrioritizedList": ("prioritized_list",),
}


def features(case: dict[str, Any]) -> SchedulerFeatures:
    on = {name for gate in case["features"] for name in GATES[gate]}
    return SchedulerFeatures(**{name: name in on for names in GATES.values() for name in names})


def allocated(case: dict[str, Any]) -> AllocatedState:
    made = AllocatedState()
    made.devices = {DeviceId(**raw_id) for raw_id in case["allocatedDevices"]}
    for share in case["allocatedSharedDevices"]:
        made.share_ids[DeviceId(share["driver"], share["pool"], share["device"])] = {share["shareID"]}
    for entry in case["allocatedCapacity"]:
        made.consume(DeviceId(entry["driver"], entry["pool"], entry["device"]), entry["consumedCapacity"])
    return made


def canonical(value: Any, name: str = "") -> Any:
    """Quantities in canonical form, without empty lists."""
    if name == "consumedCapacity":
        return {key: str(Quantity(item)) for key, item in value.items()}
    if isinstance(value, dict):
        return {key: canonical(item, key) for key, item in sorted(value.items()) if item not in (None, [], {})}
    return [canonical(item) for item in value] if isinstance(value, list) else value


def unordered(allocation: dict[str, Any]) -> Any:
    results = sorted(allocation["devices"]["results"], key=repr)
    return allocation | {"devices": allocation["devices"] | {"results": results}}


@pytest.mark.parametrize("case", parameters("allocator-cases"))
def test_upstream_case(case: dict[str, Any]) -> None:
    classes = {raw_class["metadata"]["name"]: raw_class for raw_class in case["deviceClasses"]}
    allocator = Allocator(Inventory(case["resourceSlices"], features(case)), classes, share_id=lambda: SHARE)
    expected, observed = case["expect"], case["observed"]["experimental"]
    if expected["errorContains"]:
        with pytest.raises(AllocationError) as caught:
            allocator.allocate(case["node"], case["claims"], allocated(case))
        assert all(part in str(caught.value) for part in expected["errorContains"])
    else:
        allocations = allocator.allocate(case["node"], case["claims"], allocated(case)) or []
        assert len(allocations) == len(expected["results"])
        for have, want in zip(allocations, expected["results"], strict=True):
            compare = unordered if want["match"] == "unordered" else lambda listed: listed
            assert compare(canonical(have)) == compare(canonical(want["allocation"]))
        # What upstream's allocator really returned, in order.
        assert canonical(allocations) == canonical(observed.get("allocations") or [])
        assert allocator.steps <= observed["allocateOneInvocations"]
