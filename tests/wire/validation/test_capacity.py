from __future__ import annotations

import pytest

from tests.wire.validation.objects import VERSIONS, changed, device, found, resource_slice

AT = "spec.devices[0].capacity[memory].requestPolicy"


def sharing(policy, value="8", **fields):
    return resource_slice(
        device(allowMultipleAllocations=True, capacity={"memory": {"value": value, "requestPolicy": policy}}, **fields)
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"default": "9"},
        {"default": "2", "validValues": ["1", "2", "8"]},
        {"default": "2", "validRange": {"min": "1"}},
        {"default": "2", "validRange": {"min": "0", "max": "8", "step": "2"}},
        {"default": "2000m", "validRange": {"min": "1", "max": "5", "step": "1"}},
    ],
)
def test_good_policies(policy, version):
    assert found(sharing(policy), version) == set()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"validValues": ["1"]}, {("default", "Required")}),
        ({"validRange": {"min": "1"}}, {("default", "Required")}),
        ({"default": "1", "validRange": {}}, {("validRange.min", "Required")}),
        ({"default": "3", "validValues": ["1", "2"]}, {("validValues", "Invalid")}),
        ({"default": "1", "validValues": ["2", "1"]}, {("validValues[1]", "Invalid")}),
        ({"default": "1", "validValues": ["1", "1"]}, {("validValues[1]", "Duplicate")}),
        ({"default": "1", "validValues": ["1", "9"]}, {("validValues[1]", "Invalid")}),
        ({"default": "9", "validRange": {"min": "9"}}, {("validRange.min", "Invalid")}),
        ({"default": "5", "validRange": {"min": "5", "max": "4"}}, None),
        ({"default": "1", "validRange": {"min": "1", "max": "9"}}, {("validRange.max", "Invalid")}),
        ({"default": "2", "validRange": {"min": "1", "step": "2"}}, {("validRange.step", "Invalid")}),
        ({"default": "1", "validRange": {"min": "1", "max": "4", "step": "2"}}, {("validRange.step", "Invalid")}),
        ({"default": "1", "validRange": {"min": "1", "step": "8"}}, {("validRange.step", "Invalid")}),
    ],
)
def test_broken_policies(policy, expected, version):
    newer = version == "1.37"
    if expected is None:
        expected = {("validRange.max", "Invalid")} | ({("validRange.default", "Invalid")} if newer else set())
    assert found(sharing(policy), version) == {(f"{AT}.{field}", kind) for field, kind in expected}


def test_values_and_range_exclude_each_other():
    policy = {"default": "1", "validValues": ["1"], "validRange": {"min": "1"}}
    assert found(sharing(policy)) == {(AT, "Forbidden")}


def test_a_policy_needs_a_device_that_is_shared():
    for shared in (None, False):
        obj = changed(sharing({}), "spec", "devices", 0, "allowMultipleAllocations", to=shared)
        assert found(obj) == {(AT, "Forbidden")}


def test_too_many_values():
    values = [str(value) for value in range(11)]
    assert found(sharing({"default": "1", "validValues": values}, "99"), "1.36") == {
        (f"{AT}.validValues", "TooMany"),
        (f"{AT}.validValues", "Invalid"),
    }
    assert found(sharing({"default": "1", "validValues": values}, "99"), "1.34") == {(f"{AT}.validValues", "TooMany")}


@pytest.mark.parametrize(("default", "old_field"), [("1", "min"), ("7", "max")])
def test_a_default_out_of_range_is_reported_at_the_default_since_1_37(default, old_field):
    obj = sharing({"default": default, "validRange": {"min": "2", "max": "6"}})
    assert found(obj, "1.36") == {(f"{AT}.validRange.{old_field}", "Invalid")}
    assert found(obj, "1.37") == {(f"{AT}.validRange.default", "Invalid")}


@pytest.mark.parametrize(
    ("gate", "policy", "fields"),
    [
        (True, {"default": "1.5", "validRange": {"min": "0.5", "max": "2.5", "step": "0.5"}}, set()),
        (True, {"default": "1.6", "validRange": {"min": "0.5", "step": "0.5"}}, {"step"}),
        (True, {"default": "1", "validRange": {"min": "0.0005"}}, {"min"}),
        (True, {"default": "0.0001", "validRange": {"min": "0"}}, {"default"}),
        (False, {"default": "1.5", "validRange": {"min": "1", "step": "1"}}, set()),
    ],
)
def test_fractions_count_exactly_where_the_gate_is_on(gate, policy, fields):
    got = found(sharing(policy), "1.37", gates={"DRAFractionalCapacityRange": gate})
    assert got == {(f"{AT}.validRange.{field}", "Invalid") for field in fields}


def test_values_that_differ_by_a_fraction():
    obj = sharing({"default": "1", "validValues": ["0.5", "1"]})
    assert found(obj, "1.36") == {(f"{AT}.validValues[1]", "Duplicate")}
    assert found(obj, "1.37", gates={"DRAFractionalCapacityRange": True}) == set()


@pytest.mark.parametrize("step", ["0", "-1"])
def test_a_step_must_lead_up(step):
    obj = sharing({"default": "1", "validRange": {"min": "1", "step": step}})
    assert found(obj, "1.37") == {(f"{AT}.validRange.step", "Invalid")}


def test_amounts_beyond_the_arithmetic_of_1_37():
    obj = sharing({"default": "1", "validRange": {"min": "-1", "max": "20E", "step": "1"}}, "30E")
    assert found(obj, "1.37") == {(f"{AT}.validRange.min", "Invalid"), (f"{AT}.validRange.max", "Invalid")}


def test_a_stored_capacity_may_stay_since_1_37():
    old = sharing({"default": "3", "validValues": ["1"]})
    new = changed(old, "spec", "devices", 0, "attributes", to={"a": {"int": 1}})
    assert found(new, "1.37", old=old) == set()
    assert found(new, "1.36", old=old) == {(f"{AT}.validValues", "Invalid")}
    changed_capacity = changed(new, "spec", "devices", 0, "capacity", "memory", "value", to="9")
    assert found(changed_capacity, "1.37", old=old) == {(f"{AT}.validValues", "Invalid")}
