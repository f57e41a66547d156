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
def test_good_policies_have_no_problems(policy, version):
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
def test_each_broken_rule_of_a_policy_is_reported(policy, expected, version):
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


def test_the_number_of_valid_values_is_limited():
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
def test_fractions_are_exact_only_with_their_gate(gate, policy, fields):
    got = found(sharing(policy), "1.37", gates={"DRAFractionalCapacityRange": gate})
    assert got == {(f"{AT}.validRange.{field}", "Invalid") for field in fields}


def test_values_that_differ_by_a_fraction_are_duplicates_without_the_gate():
    obj = sharing({"default": "1", "validValues": ["0.5", "1"]})
    assert found(obj, "1.36") == {(f"{AT}.validValues[1]", "Duplicate")}
    assert found(obj, "1.37", gates={"DRAFractionalCapacityRange": True}) == set()


@pytest.mark.parametrize("step", ["0", "-1"])
def test_a_step_must_be_positive(step):
    obj = sharing({"default": "1", "validRange": {"min": "1", "step": step}})
    assert found(obj, "1.37") == {(f"{AT}.validRange.step", "Invalid")}


def test_amounts_outside_64_bits_are_refused_since_1_37():
    obj = sharing({"default": "1", "validRange": {"min": "-1", "max": "20E", "step": "1"}}, "30E")
    assert found(obj, "1.37") == {(f"{AT}.validRange.min", "Invalid"), (f"{AT}.validRange.max", "Invalid")}


def test_a_stored_capacity_may_stay_since_1_37():
    old = sharing({"default": "3", "validValues": ["1"]})
    new = changed(old, "spec", "devices", 0, "attributes", to={"a": {"int": 1}})
    assert found(new, "1.37", old=old) == set()
    assert found(new, "1.36", old=old) == {(f"{AT}.validValues", "Invalid")}
    changed_capacity = changed(new, "spec", "devices", 0, "capacity", "memory", "value", to="9")
    assert found(changed_capacity, "1.37", old=old) == {(f"{AT}.validValues", "Invalid")}


ONE = {"memory": {"value": "1Gi"}}
PARTITIONS = {"DRAPartitionableDevices": True}
SETS, TAKEN = "spec.sharedCounters", "spec.devices[0].consumesCounters"


def counters(count, value="1"):
    return {f"c-{index}": {"value": value} for index in range(count)}


def counter_slice(*sets):
    return resource_slice(devices=None, sharedCounters=list(sets))


def consuming(*taken):
    return resource_slice(device(consumesCounters=list(taken)))


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([{"name": "gpu-0", "counters": ONE}, {"name": "gpu-1", "counters": counters(32)}], set()),
        ([{"name": "", "counters": ONE}], {(f"{SETS}[0].name", "Required")}),
        ([{"name": "A", "counters": ONE}], {(f"{SETS}[0].name", "Invalid")}),
        ([{"name": "a"}], {(f"{SETS}[0].counters", "Required")}),
        ([{"name": "a", "counters": {"A": {"value": "1"}}}], {(f"{SETS}[0].counters", "Invalid")}),
        ([{"name": "a", "counters": counters(33)}], {(f"{SETS}[0].counters", "TooMany")}),
        ([{"name": "a", "counters": ONE}] * 2, {(f"{SETS}[1]", "Duplicate")}),
        ([{"name": f"a-{index}", "counters": ONE} for index in range(9)], {(SETS, "TooMany")}),
    ],
)
def test_rules_of_counter_sets_are_checked(sets, expected):
    assert found(counter_slice(*sets)) == found(counter_slice(*sets), "1.37") == expected


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([{"counterSet": "a", "counters": ONE}, {"counterSet": "b", "counters": counters(32)}], set()),
        ([{"counters": ONE}], {(f"{TAKEN}[0].counterSet", "Required")}),
        ([{"counterSet": "A", "counters": ONE}], {(f"{TAKEN}[0].counterSet", "Invalid")}),
        ([{"counterSet": "a", "counters": {}}], {(f"{TAKEN}[0].counters", "Required")}),
        ([{"counterSet": "a", "counters": counters(33)}], {(f"{TAKEN}[0].counters", "TooMany")}),
        ([{"counterSet": "a", "counters": ONE}] * 2, {(f"{TAKEN}[1]", "Duplicate")}),
        ([{"counterSet": name, "counters": ONE} for name in "abc"], {(TAKEN, "TooMany")}),
    ],
)
def test_rules_of_consumed_counters_are_checked(taken, expected):
    assert found(consuming(*taken)) == found(consuming(*taken), "1.37") == expected


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (["a", "b"], set()),
        (["A"], {(f"{TAKEN}[0].compatibilityGroups[0]", "Invalid")}),
        (["a", "a"], {(f"{TAKEN}[0].compatibilityGroups[1]", "Duplicate")}),
        (["a", "b", "c"], {(f"{TAKEN}[0].compatibilityGroups", "TooMany")}),
    ],
)
def test_compatibility_groups_came_with_1_37(groups, expected):
    obj = consuming({"counterSet": "a", "counters": ONE, "compatibilityGroups": groups})
    assert found(obj, "1.37") == expected
    assert found(obj, "1.36") == {(f"{TAKEN}[0].compatibilityGroups", "Unknown")}


def test_counters_and_devices_share_no_slice_since_1_35():
    sets = [{"name": "gpu", "counters": ONE}]
    obj = resource_slice(device(consumesCounters=[{"counterSet": "gpu", "counters": ONE}]), sharedCounters=sets)
    assert found(obj, "1.35") == {("spec", "Invalid")}
    assert found(obj, "1.34") == set()
    assert found(resource_slice(devices=[], sharedCounters=[]), "1.35") == {("spec", "Invalid")}


def test_1_34_requires_counters_in_the_same_slice():
    taken = [{"counterSet": "gpu", "counters": {"bus": {"value": "1"}}}, {"counterSet": "other", "counters": ONE}]
    obj = resource_slice(device(consumesCounters=taken), sharedCounters=[{"name": "gpu", "counters": ONE}])
    assert found(obj, "1.34", gates=PARTITIONS) == {
        (f"{TAKEN}[0].counters", "Invalid"),
        (f"{TAKEN}[1].counterSet", "Invalid"),
    }


def test_1_34_limits_counters_of_a_slice_and_a_device():
    sets = [{"name": f"s-{index}", "counters": counters(11)} for index in range(3)]
    taken = [{"counterSet": counter_set["name"], "counters": counter_set["counters"]} for counter_set in sets]
    obj = resource_slice(device(consumesCounters=taken), sharedCounters=sets)
    assert found(obj, "1.34", gates=PARTITIONS) == {(SETS, "Invalid"), ("spec.devices[0]", "Invalid")}
    many = [device(f"gpu-{index}", consumesCounters=taken[:1]) for index in range(94)]
    assert found(resource_slice(*many, sharedCounters=sets[:1]), "1.34", gates=PARTITIONS) == {
        ("spec.devices", "Invalid")
    }


def test_1_34_does_not_check_counters_that_it_drops():
    obj = consuming({"counterSet": "elsewhere", "counters": counters(33)})
    assert found(obj, "1.34", gates=PARTITIONS)
    assert found(obj, "1.34") == set()


OLD, NEW = "spec.devices[0].nodeAllocatableResourceMappings", "spec.devices[0].nodeAllocatableResources"


def mapped(**mappings):
    return resource_slice(device(capacity={"cores": {"value": "4"}}, nodeAllocatableResourceMappings=mappings))


def accounted(name="cpu", **resource):
    return resource_slice(device(capacity={"cores": {"value": "4"}}, nodeAllocatableResources={name: resource}))


@pytest.mark.parametrize(
    ("mappings", "expected"),
    [
        ({"cpu": {"capacityKey": "cores"}}, set()),
        ({"memory": {"allocationMultiplier": "1Gi"}}, set()),
        ({"cpu": {}}, set()),  # the multiplier is 1 unless given
        ({"example.com/gpu": {"allocationMultiplier": "1"}}, {("[example.com/gpu]", "Invalid")}),
        ({"cpu": {"allocationMultiplier": "0"}}, {("[cpu].allocationMultiplier", "Invalid")}),
        ({"cpu": {"capacityKey": ""}}, {("[cpu].capacityKey", "Invalid")}),
        ({"cpu": {"capacityKey": "threads"}}, {("[cpu].capacityKey", "NotFound")}),
    ],
)
def test_rules_of_mappings_of_1_36_are_checked(mappings, expected):
    assert found(mapped(**mappings), "1.36") == {(f"{OLD}{field}", kind) for field, kind in expected}
    for version in ("1.35", "1.37"):
        assert found(mapped(**mappings), version) == {(OLD, "Unknown")}


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ({"mapping": {"capacityKey": "cores", "capacityMultiplier": "2"}}, set()),
        ({"mapping": {"deviceMultiplier": "2"}, "overhead": {"perPod": "1"}}, set()),
        ({"overhead": {"perPod": "0", "perContainer": "100m"}}, set()),
        ({"name": "hugepages-2Mi", "overhead": {"perPod": "2Mi"}}, set()),
        ({"name": "ephemeral-storage", "overhead": {"perPod": "1"}}, {("", "Invalid")}),
        ({}, {("", "Required")}),
        ({"mapping": {}}, {(".mapping", "Invalid")}),
        ({"mapping": {"capacityKey": "cores"}}, {(".mapping.capacityMultiplier", "Required")}),
        ({"mapping": {"capacityMultiplier": "1", "deviceMultiplier": "1"}}, {(".mapping.capacityKey", "Required")}),
        (
            {"mapping": {"capacityKey": "cores", "capacityMultiplier": "1", "deviceMultiplier": "1"}},
            {(".mapping", "Invalid")},
        ),
        ({"mapping": {"capacityKey": "threads", "capacityMultiplier": "1"}}, {(".mapping.capacityKey", "NotFound")}),
        (
            {"mapping": {"capacityKey": "cores", "capacityMultiplier": "0"}},
            {(".mapping.capacityMultiplier", "Invalid")},
        ),
        ({"mapping": {"deviceMultiplier": "-1"}}, {(".mapping.deviceMultiplier", "Invalid")}),
        ({"overhead": {}}, {(".overhead", "Invalid")}),
        ({"overhead": {"perPod": "-1"}}, {(".overhead.perPod", "Invalid")}),
        ({"overhead": {"perContainer": "-1"}}, {(".overhead.perContainer", "Invalid")}),
    ],
)
def test_rules_of_resources_of_1_37_are_checked(resource, expected):
    name = resource.get("name", "cpu")
    assert found(accounted(**resource), "1.37") == {(f"{NEW}[{name}]{field}", kind) for field, kind in expected}
    assert found(accounted(**resource), "1.36") == {(NEW, "Unknown")}
