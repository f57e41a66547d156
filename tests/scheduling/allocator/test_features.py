from __future__ import annotations

from dra_sdk.scheduling.allocator import Features
from dra_sdk.wire.profile import ServerProfile


def test_the_defaults_of_a_release() -> None:
    found = Features.of(ServerProfile.of("1.34"))
    assert found.admin_access
    assert found.prioritized_list
    assert not found.partitionable_devices
    assert not found.device_taints
    assert not found.binding_conditions


def test_gates_that_need_each_other() -> None:
    gates = {"DRADeviceBindingConditions": True, "DRAResourceClaimDeviceStatus": False, "DRADeviceTaints": False}
    found = Features.of(ServerProfile.of("1.36", gates | {"DRADeviceTaintRules": True}))
    assert not found.binding_conditions
    assert not found.taint_rules


def test_lists_reach_constraints_one_release_after_selectors() -> None:
    gates = {"DRAListTypeAttributes": True}
    old, new = Features.of(ServerProfile.of("1.36", gates)), Features.of(ServerProfile.of("1.37", gates))
    assert old.list_attributes_in_selectors
    assert old.cel.list_type_attributes
    assert (old.list_attributes, new.list_attributes) == (False, True)
