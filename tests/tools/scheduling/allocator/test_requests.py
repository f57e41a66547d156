from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import AllocationError, Features
from dra_sdk.tools.scheduling.allocator.requests import ClaimPlan, label, parse
from tests.tools.scheduling.allocator.build import NEWER, claim, device_class, first_available, of_1_37, request, wish

CLASSES = {"gpu": device_class("gpu", "true")}


def read(*requests: dict[str, Any], features: Features | None = None, **devices: Any) -> ClaimPlan:
    return parse(claim(*requests, **devices), CLASSES, features or Features())


def test_a_request_inherits_the_selectors_of_its_class() -> None:
    found = next(iter(read(request("r", "1 == 1", "2 == 2")).requests))
    assert found.selectors == ("true", "1 == 1", "2 == 2")
    assert found.where(0) == "claim ns/c, request r, class gpu: selector #0"
    assert found.where(2) == "claim ns/c, request r: selector #1"


def test_what_is_left_out_is_as_the_api_server_would_fill_it_in() -> None:
    found = next(iter(read(request("r")).requests))
    assert (found.count, found.admin, found.demand.amounts) == (1, False, {})


def test_all_devices_have_no_count() -> None:
    assert next(iter(read(request("r", allocationMode="All")).requests)).count is None


def test_alternatives_stay_in_order_of_preference() -> None:
    plan = read(first_available("r", big=wish(count=2), small=wish()))
    assert plan.groups[0].optional
    assert [(each.reference, each.base, each.count) for each in plan.requests] == [
        ("r/big", "r", 2),
        ("r/small", "r", 1),
    ]


def test_the_label_of_a_claim() -> None:
    assert label(claim(name="c")) == "ns/c"
    assert label({"metadata": {"name": "c"}}) == "c"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"name": "r"}, "claim ns/c, request r: has neither exactly nor firstAvailable"),
        (request("r", deviceClassName=""), "claim ns/c, request r: missing device class name"),
        (request("r", deviceClassName="tpu"), "claim ns/c, request r: could not retrieve device class tpu"),
        (request("r", allocationMode="Some"), "claim ns/c, request r: unsupported count mode Some"),
        (request("r", selectors=[{"rego": "x"}]), "claim ns/c, request r, selector #0: CEL expression empty"),
        (request("r", capacity={"requests": {"m": "x"}}), "claim ns/c, request r: capacity: 'x' is not a quantity"),
    ],
)
def test_a_request_that_cannot_be_worked_with(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(AllocationError, match=problem):
        read(raw)


@pytest.mark.parametrize(
    ("raw", "off", "problem"),
    [
        (request("r", adminAccess=True), "admin_access", "request r: admin access is requested"),
        (request("r", adminAccess=False), "admin_access", "request r: admin access is requested"),
        (first_available("r", one=wish()), "prioritized_list", "request r: has subrequests"),
        (request("r", capacity={"requests": {}}), "consumable_capacity", "request r: has capacity requests"),
        (first_available("r", one=wish(capacity={})), "consumable_capacity", "subrequest one: has capacity requests"),
    ],
)
def test_a_request_for_a_feature_that_is_off(raw: dict[str, Any], off: str, problem: str) -> None:
    with pytest.raises(AllocationError, match=problem):
        read(raw, features=Features(**{off: False}))


def test_a_constraint_of_the_future_is_refused() -> None:
    with pytest.raises(AllocationError, match="claim ns/c, constraint #1: empty constraint"):
        read(request("r"), constraints=[{"matchAttribute": "a/b"}, {"closeTo": "x"}])


def test_attributes_that_a_request_derives() -> None:
    raw = request("r", derivedAttributes=[{"name": "a.example.com/x", "expression": "device.driver"}])
    found = read(raw, features=NEWER)
    assert found.derives
    (derived,) = next(iter(found.requests)).derived.items()
    assert derived[0] == "a.example.com/x"
    assert derived[1].where == "claim ns/c, request r: derived attribute a.example.com/x"
    with pytest.raises(
        AllocationError, match="request r: has derived attributes, but the DRADerivedAttributes feature"
    ):
        read(raw, features=of_1_37())
    assert not read(raw).derives
