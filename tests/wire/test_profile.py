from __future__ import annotations

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.wire.profile import GATES, NEEDED_GATES, NEWEST, ServerProfile, gate_names


@pytest.mark.parametrize(
    ("text", "version"),
    [("1.34", "1.34"), ("v1.36.3", "1.36"), ("v1.35.0-rc.1+abc", "1.35"), ("1.37+", "1.37"), ("1.99.0", f"1.{NEWEST}")],
)
def test_versions_as_servers_write_them(text, version):
    assert ServerProfile.of(text).version == version


@pytest.mark.parametrize("text", ["", "1", "2.0", "latest", "1.x", "1.33", "v1.9.0"])
def test_an_unknown_or_too_old_version_is_refused(text):
    with pytest.raises(SettingsError, match=r"1\.34"):
        ServerProfile.of(text)


def test_the_newest_release_is_the_default():
    assert ServerProfile.of() == ServerProfile.of(f"1.{NEWEST}")


@pytest.mark.parametrize(
    ("gate", "on_in"),
    [
        ("DRAPrioritizedList", [34, 35, 36, 37]),
        ("DRADeviceTaints", [36, 37]),
        ("DRADeviceTaintRules", [37]),
        ("DRAFractionalCapacityRange", []),
        ("DRAListTypeAttributes", []),
    ],
)
def test_gates_that_are_on_by_default(gate, on_in):
    assert [minor for minor in (34, 35, 36, 37) if ServerProfile.of(f"1.{minor}").enabled(gate)] == on_in


def test_gates_can_be_turned_on_and_off():
    profile = ServerProfile.of("1.36", {"DRAListTypeAttributes": True, "DRADeviceTaints": False})
    assert profile.enabled("DRAListTypeAttributes", "DRAPrioritizedList")
    assert not profile.enabled("DRAPrioritizedList", "DRADeviceTaints")


def test_no_gate_is_on_before_it_exists():
    for minor in (34, 35, 36, 37):
        for gate in ServerProfile.of(f"1.{minor}").gates:
            assert GATES[gate][0] <= minor


def test_limits_differ_by_release():
    old, new = ServerProfile.of("1.34"), ServerProfile.of("1.36")
    assert (old.limits.taints_per_device, new.limits.taints_per_device) == (4, 16)
    assert (old.limits.advanced_devices_per_slice, new.limits.advanced_devices_per_slice) == (128, 64)
    assert ("None" in old.taint_effects, "None" in new.taint_effects) == (False, True)


def test_the_api_versions_of_taint_rules_differ_by_release():
    best = [ServerProfile.of(f"1.{minor}").taint_rule_versions()[0] for minor in (34, 35, 36, 37)]
    assert best == ["v1alpha3", "v1alpha3", "v1beta2", "v1"]


@pytest.mark.parametrize(
    ("minor", "gates", "gate", "applied"),
    [
        (34, {}, "DRADeviceTaints", False),
        (34, {"DRADeviceTaints": True}, "DRADeviceTaints", True),
        (35, {"DRADeviceTaints": True}, "DRADeviceTaintRules", False),
        (35, {"DRADeviceTaints": True, "DRADeviceTaintRules": True}, "DRADeviceTaintRules", True),
        (36, {}, "DRADeviceTaintRules", False),
        (37, {}, "DRADeviceTaintRules", True),
        (37, {"DRADeviceTaints": False}, "DRADeviceTaintRules", False),
    ],
)
def test_the_gate_of_taint_rules_differs_by_release(minor, gates, gate, applied):
    profile = ServerProfile.of(f"1.{minor}", gates)
    assert (profile.taint_rule_gate, profile.applies_taint_rules) == (gate, applied)


def test_a_gate_turns_on_those_that_it_needs():
    assert ServerProfile.of("1.37", {"DRAWorkloadResourceClaims": True}).enabled("GenericWorkload")
    both = {"DRAWorkloadResourceClaims": True, "GenericWorkload": False}
    assert not ServerProfile.of("1.37", both).enabled("GenericWorkload")
    assert not ServerProfile.of("1.37").enabled("GenericWorkload")


def test_the_api_versions_of_pod_groups_differ_by_release():
    gates = {"GenericWorkload": True}
    versions = {minor: ServerProfile.of(f"1.{minor}", gates).pod_group_versions() for minor in range(34, 38)}
    assert versions == {34: (), 35: (), 36: ("v1alpha2",), 37: ("v1beta1", "v1alpha3")}
    assert ServerProfile.of("1.37").pod_group_versions() == ()


def test_gangs_have_a_gate_of_their_own_in_1_36():
    assert [ServerProfile.of(f"1.{minor}", {"GenericWorkload": True}).schedules_gangs for minor in (36, 37)] == [
        False,
        True,
    ]
    assert ServerProfile.of("1.36", {"GangScheduling": True}).schedules_gangs


def test_all_gates_of_the_releases_are_known():
    assert set(GATES) | set(NEEDED_GATES) | {"GenericWorkload", "SidecarContainers", "WatchListClient"} <= gate_names()
    assert "Nonsense" not in gate_names()
