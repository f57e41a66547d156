from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.allocator import Features
from dra_sdk.wire.profile import GATES, ServerProfile


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


def test_fields_of_1_37_mean_nothing_to_older_schedulers() -> None:
    gates = dict.fromkeys(GATES, True)
    old, new = Features.of(ServerProfile.of("1.36", gates)), Features.of(ServerProfile.of("1.37", gates))
    for features, known in ((old, False), (new, True)):
        fields = (features.derived_attributes, features.compatibility_groups, features.optional_node_operations)
        assert set(fields) == {known}
        assert features.fractional_ranges is known
        assert features.behaviour.knows_newer_fields is known


def test_fractional_ranges_need_consumable_capacity() -> None:
    found = Features.of(ServerProfile.of("1.37", {"DRAConsumableCapacity": False, "DRAFractionalCapacityRange": True}))
    assert not found.fractional_ranges


@pytest.mark.parametrize(
    ("version", "gates", "variant"),
    [
        ("1.34", {}, "stable"),
        ("1.36", {"DRAListTypeAttributes": True}, "incubating"),
        ("1.37", {}, "incubating"),
        ("1.37", {"DRAConsumableCapacity": False, "DRADeviceBindingConditions": False}, "stable"),
        ("1.37", {"DRAListTypeAttributes": True}, "experimental"),
        ("1.37", {"DRADerivedAttributes": True}, "experimental"),
        ("1.37", {"DRADeviceCompatibilityGroups": True}, "experimental"),
        ("1.37", {"DRAOptionalNodeOperations": True}, "experimental"),
    ],
)
def test_the_oldest_allocator_that_knows_everything_is_taken(
    version: str, gates: dict[str, bool], variant: str
) -> None:
    assert Features.of(ServerProfile.of(version, gates)).variant == variant


def test_the_stable_allocator_keeps_counter_sets_everywhere() -> None:
    off = {"DRAConsumableCapacity": False, "DRADeviceBindingConditions": False}
    found = [Features.of(ServerProfile.of(*each)) for each in (("1.36",), ("1.37",), ("1.37", off))]
    assert [each.counter_sets_everywhere for each in found] == [True, False, True]


def test_since_1_37_selectors_always_know_lists() -> None:
    found = [Features.of(ServerProfile.of(each)).cel.list_type_attributes for each in ("1.36", "1.37")]
    assert found == [False, True]
