from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import AllocationError, SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.consumable_capacity import (
    CapacityRequest,
    consumed_capacities,
)
from dra_sdk.tools.scheduling.allocator.devices import ContentCache
from dra_sdk.tools.scheduling.allocator.quantities import parse_quantity
from tests.tools.scheduling.allocator.build import DRIVER, device, of_1_37

VALUES = {"default": "2", "validValues": ["1", "2", "4"]}
RANGE = {"default": "2", "validRange": {"min": "2", "max": "8", "step": "3"}}


WHOLE, EXACT, FRACTIONAL = SchedulerFeatures(), of_1_37(DRAFractionalCapacityRange=False), of_1_37()


def consumed(
    requested: str | None,
    policy: dict[str, Any] | None = None,
    value: str = "8",
    arithmetic: SchedulerFeatures = WHOLE,
) -> str | None:
    """What a request for memory consumes; None if it cannot be allocated."""
    capacity = {"memory": {"value": value, **({"requestPolicy": policy} if policy else {})}}
    consumptions = consumed_capacities({"memory": parse_quantity(requested)} if requested else {}, capacity, arithmetic)
    return consumptions[0].amount.text if consumptions else None


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
@pytest.mark.parametrize("arithmetic", [WHOLE, EXACT, FRACTIONAL])
def test_policies(
    requested: str | None, policy: dict[str, Any] | None, text: str | None, arithmetic: SchedulerFeatures
) -> None:
    assert consumed(requested, policy, arithmetic=arithmetic) == text


@pytest.mark.parametrize("arithmetic", [WHOLE, EXACT, FRACTIONAL])
def test_steps_with_a_binary_suffix(arithmetic: SchedulerFeatures) -> None:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    assert consumed("1500Mi", policy, "8Gi", arithmetic) == "2Gi"


@pytest.mark.parametrize(("arithmetic", "text"), [(WHOLE, "4Ki"), (EXACT, "4096"), (FRACTIONAL, "4096")])
def test_since_1_37_a_rounded_amount_has_the_suffix_of_the_step(arithmetic: SchedulerFeatures, text: str) -> None:
    policy = {"default": "1024", "validRange": {"min": "1024", "step": "1024"}}
    assert consumed("4000", policy, "100k", arithmetic) == text


TENTHS = {"default": "100m", "validRange": {"min": "100m", "max": "2", "step": "100m"}}


@pytest.mark.parametrize(
    ("requested", "fractional", "whole"),
    [("150m", "200m", "1"), ("950m", "1", "1"), ("1", "1", "1"), ("1950m", "2", "2"), ("1m", "100m", None)],
)
def test_steps_may_be_thousandths(requested: str, fractional: str, whole: str | None) -> None:
    assert consumed(requested, TENTHS, arithmetic=FRACTIONAL) == fractional
    if whole is not None:
        assert consumed(requested, TENTHS, arithmetic=EXACT) == whole


def test_steps_finer_than_thousandths_are_rounded_up_to_one() -> None:
    policy = {"default": "1", "validRange": {"min": "1", "step": "500u"}}
    assert consumed("1500m", policy, arithmetic=FRACTIONAL) == "2"


@pytest.mark.parametrize(
    ("requested", "problem"),
    [
        ("150500u", "capacity memory: 150500u is not a multiple of 1m"),
        ("10P", "capacity memory: 10P is not a multiple"),
    ],
)
def test_an_amount_that_is_no_multiple_of_a_thousandth_is_an_error(requested: str, problem: str) -> None:
    with pytest.raises(AllocationError, match=problem):
        consumed(requested, TENTHS, arithmetic=FRACTIONAL)
    assert consumed(requested, TENTHS, arithmetic=EXACT) == ("1" if requested == "150500u" else None)


def test_rounding_beyond_the_largest_number_is_an_error() -> None:
    policy = {"default": "1", "validRange": {"min": "1", "step": "5E"}}
    with pytest.raises(AllocationError, match="capacity memory: 9E, rounded up to whole steps of 5E, is too large"):
        consumed("9E", policy, "9E", EXACT)


def test_a_negative_capacity_is_an_error_in_any_order() -> None:
    capacity = {"a": {"value": "1", "requestPolicy": {"default": "1", "validValues": ["1"]}}, "b": {"value": "-1"}}
    assert consumed_capacities({"a": parse_quantity("2")}, capacity, WHOLE) is None
    with pytest.raises(AllocationError, match="capacity b: -1 is negative"):
        consumed_capacities({"a": parse_quantity("2")}, capacity, EXACT)


def test_an_error_of_a_capacity_request_names_claim_and_request() -> None:
    content = ContentCache().get(DRIVER, device("a", capacity={"memory": {"value": "8", "requestPolicy": TENTHS}}))
    capacity_request = CapacityRequest({"memory": parse_quantity("150500u")}, FRACTIONAL, "claim ns/c, request r")
    assert capacity_request.raises_error_for(content)
    with pytest.raises(AllocationError, match="claim ns/c, request r: capacity memory: 150500u"):
        capacity_request.consumed_from(content)
    assert not CapacityRequest({"memory": parse_quantity("150m")}, FRACTIONAL, "r").raises_error_for(content)


def test_requests_that_fit_an_unused_device() -> None:
    content = ContentCache().get(DRIVER, device("a", capacity={"memory": "8"}))
    assert [
        CapacityRequest({"memory": parse_quantity(amount)}, WHOLE, "r").fits_unused(content) for amount in ("8", "9")
    ] == [
        True,
        False,
    ]
    assert not CapacityRequest({"cores": parse_quantity("1")}, WHOLE, "r").fits_unused(content)


def test_a_missing_capacity_cannot_be_allocated() -> None:
    assert consumed_capacities({"bandwidth": parse_quantity("1")}, {"memory": {"value": "1"}}, WHOLE) is None
    assert consumed_capacities({"bandwidth": parse_quantity("1")}, None, WHOLE) is None
    assert consumed_capacities({}, None, WHOLE) == ()


def test_without_a_request_all_capacity_is_consumed() -> None:
    consumptions = consumed_capacities({}, {"memory": {"value": "1Gi"}, "cores": {"value": "4"}}, WHOLE)
    assert consumptions
    assert {consumption.name: consumption.amount.nano == consumption.available for consumption in consumptions} == {
        "memory": True,
        "cores": True,
    }


def test_an_invalid_capacity_is_named() -> None:
    with pytest.raises(AllocationError, match="capacity memory: 'much' is not a quantity"):
        consumed_capacities({}, {"memory": {"value": "much"}}, WHOLE)


def test_a_capacity_request_is_computed_once_for_each_content() -> None:
    contents, capacity_request = ContentCache(), CapacityRequest({"memory": parse_quantity("1")}, WHOLE, "r")
    one, other = (contents.get(DRIVER, device(name, capacity={"memory": "4"})) for name in ("a", "b"))
    assert capacity_request.consumed_from(one) is capacity_request.consumed_from(other)
