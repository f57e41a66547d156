from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.errors import InvalidError
from dra_sdk.node.slices.dropped import DroppedFieldsError, dropped_fields, explained

FULL: dict[str, Any] = {
    "name": "d",
    "taints": [{"key": "k", "effect": "None"}],
    "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
    "bindsToNode": True,
    "bindingConditions": ["a"],
    "bindingFailureConditions": ["b"],
    "allowMultipleAllocations": True,
    "allNodes": True,
    "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}},
    "attributes": {"list": {"ints": [1]}, "plain": {"int": 1}},
    "capacity": {"m": {"value": "1", "requestPolicy": {"default": "1"}}},
    "madeUp": 1,
}


@pytest.mark.parametrize(
    ("field", "gate"),
    [
        ("taints", "DRADeviceTaints"),
        ("consumesCounters", "DRAPartitionableDevices"),
        ("allNodes", "DRAPartitionableDevices"),
        ("bindsToNode", "DRADeviceBindingConditions"),
        ("bindingConditions", "DRADeviceBindingConditions"),
        ("bindingFailureConditions", "DRADeviceBindingConditions"),
        ("allowMultipleAllocations", "DRAConsumableCapacity"),
        ("nodeAllocatableResourceMappings", "DRANodeAllocatableResources"),
        ("madeUp", "unknown"),
    ],
)
def test_a_field_of_a_device(field: str, gate: str):
    stored = {key: value for key, value in FULL.items() if key != field}
    assert dropped_fields({"devices": [FULL]}, {"devices": [stored]}) == [(f"device d: {field}", gate)]


def test_parts_of_fields():
    stored = {**FULL, "attributes": {"list": {}, "plain": {"int": 1}}, "capacity": {"m": {"value": "1"}}}
    assert dropped_fields({"devices": [FULL]}, {"devices": [stored]}) == [
        ("device d: attributes list", "DRAListTypeAttributes"),
        ("device d: capacity m", "DRAConsumableCapacity"),
    ]


@pytest.mark.parametrize("field", ["perDeviceNodeSelection", "sharedCounters"])
def test_a_field_of_the_slice(field: str):
    sent = {"perDeviceNodeSelection": True, "sharedCounters": [{"name": "s", "counters": {"c": {"value": "1"}}}]}
    stored = {key: value for key, value in sent.items() if key != field}
    assert dropped_fields(sent, stored) == [(field, "DRAPartitionableDevices")]


def test_what_thousands_of_devices_lose_is_told_in_a_few_words():
    lost = [(f"device d{i}: taints", "DRADeviceTaints") for i in range(64)]
    error = DroppedFieldsError("p", dict.fromkeys(range(80), lost))
    assert len(str(error)) < 4000
    assert "device d9: taints and 54 more; slice 1: " in str(error)
    assert str(error).endswith(
        "and so on in 70 more slices; probably these feature gates are disabled: DRADeviceTaints"
    )
    assert error.slices == list(range(80))


def test_a_whole_device():
    assert dropped_fields({"devices": [FULL]}, {}) == [("device d", "unknown")]


def test_more_than_was_sent_is_no_loss():
    stored = {"devices": [{**FULL, "future": 1}], "future": 2}
    assert dropped_fields({"devices": [FULL], "pool": {"name": "p"}}, stored) == []


def test_the_error_names_slices_fields_and_gates():
    error = DroppedFieldsError("p", {1: [("device d: taints", "DRADeviceTaints")], 0: [("sharedCounters", "X")]})
    assert (error.slices, error.gates) == ([0, 1], ["DRADeviceTaints", "X"])
    assert str(error) == (
        "pool p: slice 0: the API server dropped sharedCounters; slice 1: the API server dropped device d: taints; "
        "probably these feature gates are disabled: DRADeviceTaints, X"
    )


def test_list_attributes_that_are_refused_are_explained():
    error = InvalidError("exactly one value must be specified", status=422, reason="Invalid")
    plain = {"devices": [{"name": "d", "attributes": {"a": {"int": 1}}}, {"name": "e"}], "nodeName": "n"}
    assert explained(error, plain) is error
    told = explained(error, {"devices": [FULL]})
    assert str(told).startswith("exactly one value must be specified (")
    assert "DRAListTypeAttributes" in str(told)
    assert (told.status, told.reason) == (422, "Invalid")


def test_counter_sets_elsewhere_are_explained():
    words = "must reference a counterSet defined in the ResourceSlice sharedCounters"
    told = explained(InvalidError(f"spec.devices[0]: {words}", status=422, reason="Invalid"), {"devices": [FULL]})
    assert str(told).endswith(
        "(1.34 wants counter sets in one slice with the devices that use them, at most 32 counters and 128 devices)"
    )
