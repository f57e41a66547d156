from __future__ import annotations

from dataclasses import asdict, astuple, replace

import pytest

from dra_sdk.tools.scheduling.allocator import SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.features import OF_1_34, SINCE_1_37, UP_TO_1_36, ReleaseBehaviour
from dra_sdk.wire.profile import GATES, ServerProfile


@pytest.mark.parametrize(
    ("minor", "expected"), [(34, OF_1_34), (35, UP_TO_1_36), (36, UP_TO_1_36), (37, SINCE_1_37), (38, SINCE_1_37)]
)
def test_the_behaviour_of_each_release(minor: int, expected: ReleaseBehaviour) -> None:
    assert ReleaseBehaviour.of(minor) is expected


def test_all_bugs_were_fixed_in_1_37() -> None:
    assert set(astuple(UP_TO_1_36)) == {False}
    of_1_34 = {name: value for name, value in asdict(OF_1_34).items() if value}
    assert set(astuple(replace(SINCE_1_37, **of_1_34))) == {True}


def test_1_34_differs_in_where_counter_sets_are_and_in_extended_resources() -> None:
    assert [name for name, value in asdict(OF_1_34).items() if value] == [
        "counters_with_devices",
        "extended_resources_of_1_34",
    ]


def test_the_defaults_of_a_release() -> None:
    features = SchedulerFeatures.of(ServerProfile.of("1.34"))
    assert features.admin_access
    assert features.prioritized_list
    assert not features.partitionable_devices
    assert not features.device_taints
    assert not features.binding_conditions


def test_gates_that_depend_on_others() -> None:
    gates = {"DRADeviceBindingConditions": True, "DRAResourceClaimDeviceStatus": False, "DRADeviceTaints": False}
    features = SchedulerFeatures.of(ServerProfile.of("1.36", gates | {"DRADeviceTaintRules": True}))
    assert not features.binding_conditions
    assert not features.taint_rules


def test_lists_in_constraints_came_one_release_after_selectors() -> None:
    gates = {"DRAListTypeAttributes": True}
    old, new = (
        SchedulerFeatures.of(ServerProfile.of("1.36", gates)),
        SchedulerFeatures.of(ServerProfile.of("1.37", gates)),
    )
    assert old.list_attributes_in_selectors
    assert old.cel.list_type_attributes
    assert (old.list_attributes, new.list_attributes) == (False, True)


def test_older_schedulers_ignore_the_fields_of_1_37() -> None:
    gates = dict.fromkeys(GATES, True)
    old, new = (
        SchedulerFeatures.of(ServerProfile.of("1.36", gates)),
        SchedulerFeatures.of(ServerProfile.of("1.37", gates)),
    )
    for features, known in ((old, False), (new, True)):
        fields = (features.derived_attributes, features.compatibility_groups, features.optional_node_operations)
        assert set(fields) == {known}
        assert features.fractional_ranges is known
        assert features.behaviour.knows_1_37_fields is known


def test_fractional_ranges_need_consumable_capacity() -> None:
    features = SchedulerFeatures.of(
        ServerProfile.of("1.37", {"DRAConsumableCapacity": False, "DRAFractionalCapacityRange": True})
    )
    assert not features.fractional_ranges


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
def test_the_oldest_allocator_that_supports_all_features_is_chosen(
    version: str, gates: dict[str, bool], variant: str
) -> None:
    assert SchedulerFeatures.of(ServerProfile.of(version, gates)).variant == variant


def test_the_stable_allocator_keeps_counter_sets_everywhere() -> None:
    off = {"DRAConsumableCapacity": False, "DRADeviceBindingConditions": False}
    variants = [
        SchedulerFeatures.of(ServerProfile.of(*arguments)) for arguments in (("1.36",), ("1.37",), ("1.37", off))
    ]
    assert [features.counter_sets_everywhere for features in variants] == [True, False, True]


def test_since_1_37_selectors_always_support_lists() -> None:
    lists = [SchedulerFeatures.of(ServerProfile.of(version)).cel.list_type_attributes for version in ("1.36", "1.37")]
    assert lists == [False, True]
