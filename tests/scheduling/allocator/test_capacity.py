from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.scheduling.allocator import AllocationError
from dra_sdk.scheduling.allocator.amounts import amount
from dra_sdk.scheduling.allocator.capacity import Demand, consumption
from dra_sdk.scheduling.allocator.devices import Contents
from tests.scheduling.allocator.build import DRIVER, device

VALUES = {"default": "2", "validValues": ["1", "2", "4"]}
RANGE = {"default": "2", "validRange": {"min": "2", "max": "8", "step": "3"}}


def consumed(requested: str | None, policy: dict[str, Any] | None = None, value: str = "8") -> str | None:
    """What a request for memory consumes; None if it cannot be had."""
    capacity = {"memory": {"value": value, **({"requestPolicy": policy} if policy else {})}}
    found = consumption({"memory": amount(requested)} if requested else {}, capacity)
    return found[0].amount.text if found else None


@pytest.mark.parametrize(
    ("requested", "policy", "text"),
    [
        (None, None, "8"),
        ("3", None, "3"),
        ("1500m", None, "1500m"),
        (None, VALUES, "2"),
        ("3", VALUES, "4"),
        ("5", VALUES, None),
        (None, RANGE, "2"),
        ("1", RANGE, "2"),
        ("3", RANGE, "5"),
        ("6", RANGE, "8"),
        ("9", RANGE, None),
        ("3", {"default": "1", "validRange": {"min": "1", "max": "4"}}, "3"),
        ("5", {"default": "1", "validRange": {"min": "1", "max": "4"}}, None),
        ("3", {"default": "1"}, "3"),
        ("0", {"default": "0", "validValues": ["0", "2"]}, "0"),
    ],
)
def test_policies(requested: str | None, policy: dict[str, Any] | None, text: str | None) -> None:
    assert consumed(requested, policy) == text


def test_steps_are_counted_in_binary_suffixes() -> None:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    assert consumed("1500Mi", policy, "8Gi") == "2Gi"


def test_a_capacity_the_device_has_not_cannot_be_had() -> None:
    assert consumption({"bandwidth": amount("1")}, {"memory": {"value": "1"}}) is None
    assert consumption({"bandwidth": amount("1")}, None) is None
    assert consumption({}, None) == ()


def test_a_device_without_demand_loses_all_of_everything() -> None:
    found = consumption({}, {"memory": {"value": "1Gi"}, "cores": {"value": "4"}})
    assert found
    assert {each.name: each.amount.nano == each.available for each in found} == {"memory": True, "cores": True}


def test_a_capacity_that_is_no_quantity_is_named() -> None:
    with pytest.raises(AllocationError, match="capacity memory: 'much' is not a quantity"):
        consumption({}, {"memory": {"value": "much"}})


def test_a_demand_is_worked_out_once_for_each_content() -> None:
    contents, demand = Contents(), Demand({"memory": amount("1")})
    one, other = (contents.of(DRIVER, device(name, capacity={"memory": "4"})) for name in ("a", "b"))
    assert demand.of(one) is demand.of(other)
