from __future__ import annotations

import pytest

from tests.wire.validation.objects import device, found, resource_slice

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
def test_counter_sets(sets, expected):
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
def test_consumption(taken, expected):
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


def test_1_34_wants_what_is_consumed_in_the_same_slice():
    taken = [{"counterSet": "gpu", "counters": {"bus": {"value": "1"}}}, {"counterSet": "other", "counters": ONE}]
    obj = resource_slice(device(consumesCounters=taken), sharedCounters=[{"name": "gpu", "counters": ONE}])
    assert found(obj, "1.34", gates=PARTITIONS) == {
        (f"{TAKEN}[0].counters", "Invalid"),
        (f"{TAKEN}[1].counterSet", "Invalid"),
    }


def test_1_34_counts_counters_in_all():
    sets = [{"name": f"s-{index}", "counters": counters(11)} for index in range(3)]
    taken = [{"counterSet": each["name"], "counters": each["counters"]} for each in sets]
    obj = resource_slice(device(consumesCounters=taken), sharedCounters=sets)
    assert found(obj, "1.34", gates=PARTITIONS) == {(SETS, "Invalid"), ("spec.devices[0]", "Invalid")}
    many = [device(f"gpu-{index}", consumesCounters=taken[:1]) for index in range(94)]
    assert found(resource_slice(*many, sharedCounters=sets[:1]), "1.34", gates=PARTITIONS) == {
        ("spec.devices", "Invalid")
    }


def test_1_34_does_not_judge_counters_that_it_drops():
    obj = consuming({"counterSet": "elsewhere", "counters": counters(33)})
    assert found(obj, "1.34", gates=PARTITIONS)
    assert found(obj, "1.34") == set()
