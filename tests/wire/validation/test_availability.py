from __future__ import annotations

import pytest

from dra_sdk.wire.validation import ServerProfile, dropped
from tests.wire.validation.objects import claim, device, device_class, found, request, resource_slice


def lost(obj, version="1.36", gates=None):
    return {field.field: field.gates for field in dropped(obj, ServerProfile.of(version, gates))}


SLICE = resource_slice(
    device(
        attributes={"a": {"ints": [1]}, "b": {"int": 1}},
        capacity={"m": {"value": "1", "requestPolicy": {}}},
        taints=[{"key": "a", "effect": "NoExecute"}],
        allowMultipleAllocations=True,
        bindsToNode=True,
    ),
    nodeName="node-a",
)


def test_each_release_drops_the_fields_of_gates_that_are_off_by_default():
    taints = {"spec.devices[0].taints": ("DRADeviceTaints",)}
    shared = {
        "spec.devices[0].capacity[m].requestPolicy": ("DRAConsumableCapacity",),
        "spec.devices[0].allowMultipleAllocations": ("DRAConsumableCapacity",),
    }
    binding = {"spec.devices[0].bindsToNode": ("DRADeviceBindingConditions",)}
    assert lost(SLICE, "1.35") == taints | shared | binding
    assert lost(SLICE, "1.36") == {"spec.devices[0].attributes[a].ints": ("DRAListTypeAttributes",)}
    assert lost(SLICE, "1.36", {"DRAListTypeAttributes": True}) == {}


def test_all_missing_gates_are_named():
    gates = {"DRADeviceBindingConditions": False, "DRAResourceClaimDeviceStatus": False}
    assert lost(resource_slice(device(bindsToNode=True)), "1.36", gates) == {
        "spec.devices[0].bindsToNode": ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus")
    }


def test_a_field_that_the_release_does_not_have_is_unknown_not_dropped():
    assert "spec.devices[0].attributes[a].ints" not in lost(SLICE, "1.35")
    assert ("spec.devices[0].attributes[a].ints", "Unknown") in found(SLICE, "1.35")


@pytest.mark.parametrize(
    ("obj", "gate", "field"),
    [
        (claim({"name": "a", "firstAvailable": []}), "DRAPrioritizedList", "spec.devices.requests[0].firstAvailable"),
        (claim(request(adminAccess=True)), "DRAAdminAccess", "spec.devices.requests[0].exactly.adminAccess"),
        (claim(request(tolerations=[{}])), "DRADeviceTaints", "spec.devices.requests[0].exactly.tolerations"),
        (claim(request(capacity={})), "DRAConsumableCapacity", "spec.devices.requests[0].exactly.capacity"),
        (claim(status={"devices": []}), "DRAResourceClaimDeviceStatus", "status.devices"),
        (device_class(extendedResourceName="a.com/b"), "DRAExtendedResource", "spec.extendedResourceName"),
        (resource_slice(sharedCounters=[]), "DRAPartitionableDevices", "spec.sharedCounters"),
    ],
)
def test_each_gate_guards_its_fields(obj, gate, field):
    assert lost(obj, "1.36", {gate: False}) == {field: (gate,)}
    assert lost(obj, "1.36") == {}


def test_a_dropped_field_and_its_gate_are_named_in_a_sentence():
    (loss,) = dropped(claim(request(adminAccess=True)), ServerProfile.of("1.36", {"DRAAdminAccess": False}))
    assert str(loss) == (
        "spec.devices.requests[0].exactly.adminAccess: dropped by the server, whose feature gate DRAAdminAccess is off"
    )


def test_an_unknown_kind_has_no_dropped_fields():
    assert dropped({"kind": "Pod"}) == []
