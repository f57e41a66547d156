from __future__ import annotations

import re
from typing import Any

import pytest

from dra_sdk import cel
from dra_sdk.tools.scheduling.allocator import AllocationError, SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.claim_requests import AttributeDerivation, ParsedClaim, claim_label, parse_claim
from tests.tools.scheduling.allocator.build import (
    DRIVER,
    NEWER,
    a_slice,
    candidates,
    claim,
    device,
    device_class,
    exact_request,
    first_available,
    of_1_37,
    request,
)

CLASSES = {"gpu": device_class("gpu", "true")}


def parse(*requests: dict[str, Any], features: SchedulerFeatures | None = None, **devices: Any) -> ParsedClaim:
    return parse_claim(claim(*requests, **devices), CLASSES, features or SchedulerFeatures())


def test_a_request_inherits_the_selectors_of_its_class() -> None:
    parsed_request = next(iter(parse(request("r", "1 == 1", "2 == 2")).requests))
    assert parsed_request.selectors == ("true", "1 == 1", "2 == 2")
    assert parsed_request.describe_selector(0) == "claim ns/c, request r, class gpu: selector #0"
    assert parsed_request.describe_selector(2) == "claim ns/c, request r: selector #1"


def test_missing_fields_have_the_defaults_of_the_api_server() -> None:
    parsed_request = next(iter(parse(request("r")).requests))
    assert (parsed_request.count, parsed_request.admin_access, parsed_request.capacity_request.amounts) == (
        1,
        False,
        {},
    )


def test_all_devices_have_no_count() -> None:
    assert next(iter(parse(request("r", allocationMode="All")).requests)).count is None


def test_alternatives_stay_in_order_of_preference() -> None:
    parsed = parse(first_available("r", big=exact_request(count=2), small=exact_request()))
    assert parsed.groups[0].prioritized
    assert [
        (parsed_request.reference, parsed_request.base_name, parsed_request.count) for parsed_request in parsed.requests
    ] == [
        ("r/big", "r", 2),
        ("r/small", "r", 1),
    ]


def test_the_label_of_a_claim() -> None:
    assert claim_label(claim(name="c")) == "ns/c"
    assert claim_label({"metadata": {"name": "c"}}) == "c"


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
def test_a_request_that_cannot_be_processed(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(AllocationError, match=problem):
        parse(raw)


@pytest.mark.parametrize(
    ("raw", "off", "problem"),
    [
        (request("r", adminAccess=True), "admin_access", "request r: admin access is requested"),
        (request("r", adminAccess=False), "admin_access", "request r: admin access is requested"),
        (first_available("r", one=exact_request()), "prioritized_list", "request r: has subrequests"),
        (request("r", capacity={"requests": {}}), "consumable_capacity", "request r: has capacity requests"),
        (
            first_available("r", one=exact_request(capacity={})),
            "consumable_capacity",
            "subrequest one: has capacity requests",
        ),
    ],
)
def test_a_request_for_a_feature_that_is_off(raw: dict[str, Any], off: str, problem: str) -> None:
    with pytest.raises(AllocationError, match=problem):
        parse(raw, features=SchedulerFeatures(**{off: False}))


def test_an_unknown_constraint_is_an_error() -> None:
    with pytest.raises(AllocationError, match="claim ns/c, constraint #1: empty constraint"):
        parse(request("r"), constraints=[{"matchAttribute": "a/b"}, {"closeTo": "x"}])


def test_attributes_that_a_request_derives() -> None:
    raw = request("r", derivedAttributes=[{"name": "a.example.com/x", "expression": "device.driver"}])
    parsed = parse(raw, features=NEWER)
    assert parsed.has_derived_attributes
    (derived,) = next(iter(parsed.requests)).derived_attributes.items()
    assert derived[0] == "a.example.com/x"
    assert derived[1].where == "claim ns/c, request r: derived attribute a.example.com/x"
    with pytest.raises(
        AllocationError, match="request r: has derived attributes, but the DRADerivedAttributes feature"
    ):
        parse(raw, features=of_1_37())
    assert not parse(raw).has_derived_attributes


WHERE = "claim ns/c, request r: derived attribute example.com/x"


def derived(expression: str) -> AttributeDerivation:
    return AttributeDerivation(expression, cel.Features(), WHERE)


def test_a_derived_value_is_computed_once_for_equal_devices() -> None:
    one, like, other = (
        candidate.device for candidate in candidates(a_slice(*(device(n, m=m) for n, m in ("ax", "bx", "cy"))))
    )
    attribute = derived(f'device.attributes["{DRIVER}"].m + "!"')
    assert attribute.value_for(one) == {"string": "x!"}
    assert attribute.value_for(like) is attribute.value_for(one)
    assert attribute.value_for(other) == {"string": "y!"}


@pytest.mark.parametrize("expression", ["1.5", "device.absent", f'device.attributes["{DRIVER}"].absent'])
def test_an_expression_without_a_value_is_an_error(expression: str) -> None:
    (gpu,) = candidates(a_slice(device("a")))
    with pytest.raises(AllocationError, match=re.escape(f"{WHERE}, evaluated on device {DRIVER}/n1/a: ")):
        derived(expression).value_for(gpu.device)
