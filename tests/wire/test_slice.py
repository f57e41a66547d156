from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from typing import Any

import pytest

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model.device import (
    Capacity,
    CounterConsumption,
    CounterSet,
    Device,
    DeviceTaint,
    NodeAllocatable,
    NodeSelection,
    RequestPolicy,
    Version,
)
from dra_sdk.model.quantity import Quantity
from dra_sdk.wire.slice import counter_set_json, device_json, is_complex, node_selection_json

DRIVER = "gpu.example.com"


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


def test_a_device_without_fields_has_only_its_name():
    assert device_json(Device("gpu-0"), DRIVER) == {"name": "gpu-0"}


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (True, {"bool": True}),
        (False, {"bool": False}),
        (0, {"int": 0}),
        (2**63 - 1, {"int": 2**63 - 1}),
        ("", {"string": ""}),
        ("a", {"string": "a"}),
        (Version("1.2.3"), {"version": "1.2.3"}),
        ([True, False], {"bools": [True, False]}),
        ((1, 2), {"ints": [1, 2]}),
        (["a"], {"strings": ["a"]}),
        ([Version("1.0.0")], {"versions": ["1.0.0"]}),
        (Colour.RED, {"string": "red"}),
        (Level.HIGH, {"int": 3}),
    ],
)
def test_each_type_of_attribute_is_written(value: Any, raw: dict[str, Any]):
    attribute = device_json(Device("d", attributes={"a": value}), DRIVER)["attributes"]["a"]
    assert attribute == raw
    (inner,) = attribute.values()
    flat = inner if isinstance(inner, list) else [inner]
    assert all(type(item) in {bool, int, str} for item in flat)


@pytest.mark.parametrize("value", [1.5, None, b"x", {}, 2**63, [], [1, "a"], [True, 1], ["a", Version("1.0.0")], [1.5]])
def test_values_of_other_types_are_refused(value: Any):
    with pytest.raises(InvalidObjectError, match=r"^device gpu-0: attribute speed: .* is not a"):
        device_json(Device("gpu-0", attributes={"speed": value}), DRIVER)


def test_all_problems_of_a_device_are_reported_at_once():
    device = Device("gpu-0", attributes={"speed": 1.5}, capacity={"memory": "lots"})  # type: ignore[dict-item]
    with pytest.raises(InvalidObjectError) as caught:
        device_json(device, DRIVER)
    assert caught.value.subject == "device gpu-0"
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["attribute speed", "capacity memory"]


def test_attribute_names_in_the_drivers_own_domain_are_short():
    device = Device(
        "d",
        attributes={f"{DRIVER}/model": "x", "other.com/model": "y"},
        capacity={f"{DRIVER}/memory": 1},
        node_allocatable={"memory": NodeAllocatable(capacity_key=f"{DRIVER}/memory")},
    )
    raw = device_json(device, DRIVER)
    assert list(raw["attributes"]) == ["model", "other.com/model"]
    assert list(raw["capacity"]) == [f"{DRIVER}/memory"]  # claims must spell it exactly as the slice does
    mapping = {"capacityKey": f"{DRIVER}/memory", "allocationMultiplier": "1"}
    assert raw["nodeAllocatableResourceMappings"] == {"memory": mapping}
    with pytest.raises(InvalidObjectError, match="attribute model: is given twice"):
        device_json(Device("d", attributes={f"{DRIVER}/model": "x", "model": "y"}), DRIVER)


def test_capacities_are_written_with_canonical_amounts():
    policy = RequestPolicy(default="1Gi", min="512Mi", max="1024Mi", step=1)
    values = RequestPolicy(default=1, valid_values=[1, "2"])
    raw = device_json(
        Device(
            "d",
            allow_multiple_allocations=True,
            capacity={
                "a": "1024Mi",
                "b": 5,
                "c": Quantity("500m"),
                "d": Capacity("2Gi", policy),
                "e": Capacity(2, values),
            },
        ),
        DRIVER,
    )
    assert raw["allowMultipleAllocations"] is True
    assert raw["capacity"] == {
        "a": {"value": "1Gi"},
        "b": {"value": "5"},
        "c": {"value": "500m"},
        "d": {
            "value": "2Gi",
            "requestPolicy": {"default": "1Gi", "validRange": {"min": "512Mi", "max": "1Gi", "step": "1"}},
        },
        "e": {"value": "2", "requestPolicy": {"default": "1", "validValues": ["1", "2"]}},
    }


def test_a_policy_is_a_list_or_a_range():
    both = Capacity(2, RequestPolicy(default=1, valid_values=[1], min=1))
    with pytest.raises(InvalidObjectError, match="capacity a: policy: either valid_values or min"):
        device_json(Device("d", capacity={"a": both}), DRIVER)
    with pytest.raises(InvalidObjectError, match=r"capacity a: policy\.min: 'x' is not a quantity"):
        device_json(Device("d", capacity={"a": Capacity(2, RequestPolicy(default=1, min="x"))}), DRIVER)


def test_taints_are_written_with_utc_times():
    added = datetime(2026, 1, 2, 5, 4, 5, 999999, tzinfo=timezone(timedelta(hours=2)))
    taints = [
        DeviceTaint(key="a/b", effect="NoExecute", time_added=added),
        DeviceTaint(key="c", effect="None", value="v"),
    ]
    raw = device_json(Device("d", taints=taints), DRIVER)
    assert raw["taints"] == [
        {"key": "a/b", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"},
        {"key": "c", "effect": "None", "value": "v"},
    ]
    naive = DeviceTaint(key="k", effect="NoExecute", time_added=added.replace(tzinfo=None))
    with pytest.raises(InvalidObjectError, match=r"device d: taint k: time_added: .* has no time zone"):
        device_json(Device("d", taints=[naive]), DRIVER)


def test_counters_and_binding_conditions_are_written():
    raw = device_json(
        Device(
            "d",
            consumes=[CounterConsumption("set", {"memory": "4096Mi"})],
            binds_to_node=True,
            binding_conditions=["ready"],
            binding_failure_conditions=["broken"],
        ),
        DRIVER,
    )
    assert raw == {
        "name": "d",
        "consumesCounters": [{"counterSet": "set", "counters": {"memory": {"value": "4Gi"}}}],
        "bindsToNode": True,
        "bindingConditions": ["ready"],
        "bindingFailureConditions": ["broken"],
    }
    assert counter_set_json(CounterSet("set", {"memory": "4096Mi"})) == {
        "name": "set",
        "counters": {"memory": {"value": "4Gi"}},
    }
    with pytest.raises(InvalidObjectError, match="counter set set: counter memory: 'x' is not a quantity"):
        counter_set_json(CounterSet("set", {"memory": "x"}))
    with pytest.raises(InvalidObjectError, match="device d: consumes set: counter memory: 'x' is not a quantity"):
        device_json(Device("d", consumes=[CounterConsumption("set", {"memory": "x"})]), DRIVER)


def test_exactly_one_node_selection_is_written():
    selector = {"nodeSelectorTerms": [{"matchExpressions": []}]}
    assert device_json(Device("d", node=NodeSelection(node_name="n")), DRIVER) == {"name": "d", "nodeName": "n"}
    assert node_selection_json(NodeSelection(node_selector=selector), []) == {"nodeSelector": selector}
    assert node_selection_json(NodeSelection(all_nodes=True), []) == {"allNodes": True}
    for wrong in (NodeSelection(), NodeSelection(node_name="n", all_nodes=True)):
        with pytest.raises(
            InvalidObjectError, match="device d: node: exactly one of node_name, node_selector and all_"
        ):
            device_json(Device("d", node=wrong), DRIVER)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (Device("d", attributes={"a": "x"}, capacity={"c": 1}), False),
        (Device("d", attributes={"a": ["x"]}), True),
        (Device("d", taints=[DeviceTaint(key="k", effect="None", time_added=datetime.now(UTC))]), True),
        (Device("d", consumes=[CounterConsumption("s", {"c": 1})]), True),
    ],
)
def test_some_devices_halve_the_limit_of_a_slice(device: Device, expected: bool):
    assert is_complex(device_json(device, DRIVER)) is expected


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("attributes", [("a", 1)], "attributes must be a mapping, is [('a', 1)]"),
        ("attributes", None, "attributes must be a mapping, is None"),
        ("capacity", ["memory"], "capacity must be a mapping, is ['memory']"),
        ("node_allocatable", 1, "node_allocatable must be a mapping, is 1"),
        ("consumes", {"set": 1}, "consumes must be a list of CounterConsumption, is {'set': 1}"),
        ("consumes", CounterConsumption("s", {"c": 1}), "consumes must be a list of CounterConsumption, is Counter"),
        ("consumes", [CounterConsumption("s", ["c"])], "consumes s: counters must be a mapping, is ['c']"),  # type: ignore[arg-type]
        ("taints", ["broken"], "taints must be a list of DeviceTaint, is ['broken']"),
        ("binding_conditions", 7, "binding_conditions must be a list of str, is 7"),
        ("binding_conditions", "Ready", "binding_conditions must be a list of str, is 'Ready'"),
        ("binding_failure_conditions", "Failed", "binding_failure_conditions must be a list of str, is 'Failed'"),
        ("attributes", 1000 * "x", f"attributes must be a mapping, is '{99 * 'x'}…"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(field: str, value: Any, problem: str) -> None:
    with pytest.raises(InvalidObjectError) as caught:
        device_json(Device("a", **{field: value}), DRIVER)
    assert caught.value.subject == "device a"
    assert caught.value.problems[0].startswith(problem)
    assert len(str(caught.value)) < 250


def test_counters_of_the_wrong_type_are_named() -> None:
    with pytest.raises(InvalidObjectError, match=r"^counter set s: counters must be a mapping, is \['c'\]$"):
        counter_set_json(CounterSet("s", ["c"]))  # type: ignore[arg-type]
