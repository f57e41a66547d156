from __future__ import annotations

from enum import IntEnum, StrEnum

import pytest

from dra_sdk import cel
from dra_sdk.cel.device import DeviceView
from dra_sdk.model.device import Capacity, Device, Version
from dra_sdk.model.quantity import Quantity


class Color(StrEnum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


def matches(expression: str, view: DeviceView) -> bool:
    return cel.compile(expression).matches(view)


def test_names_without_a_domain_belong_to_the_driver():
    view = DeviceView.of(Device("d", {"a": 1, "x.example.com/b": 2}, {"m": 1}), "x.example.com")
    assert matches("device.attributes['x.example.com'].a == 1 && device.attributes['x.example.com'].b == 2", view)
    assert matches("device.capacity['x.example.com'].m == quantity('1')", view)


def test_capacities_in_every_form():
    view = DeviceView("d", capacity={"a": 2, "b": "2", "c": Quantity(2), "d": Capacity("2")})
    assert matches("['a', 'b', 'c', 'd'].all(x, device.capacity['d'][x] == quantity('2'))", view)


def test_subclasses_are_plain_values():
    view = DeviceView("d", {"color": Color.RED, "size": Size.BIG, "both": (Color.RED, "blue")})
    assert matches("device.attributes['d'].color == 'red' && device.attributes['d'].size == 3", view)
    assert matches("device.attributes['d'].both == ['red', 'blue']", view)


def test_versions_alone_and_in_lists():
    view = DeviceView("d", {"one": Version("1.0.0"), "some": [Version("1.0.0"), Version("2.0.0")]})
    assert matches("device.attributes['d'].some.exists(x, x.isGreaterThan(device.attributes['d'].one))", view)


def test_from_json_is_what_a_slice_holds():
    device = {
        "name": "d",
        "attributes": {"i": {"int": 0}, "b": {"bool": False}, "s": {"string": ""}, "v": {"version": "1.0.0"}},
        "capacity": {"m": {"value": "1Gi"}},
        "allowMultipleAllocations": True,
    }
    view = DeviceView.from_json(device, "d")
    own = "device.attributes['d']"
    assert matches(f"{own}.i == 0 && !{own}.b && {own}.s == '' && {own}.v == semver('1.0.0')", view)
    assert matches("device.allowMultipleAllocations && device.capacity['d'].m == quantity('1Gi')", view)


@pytest.mark.parametrize(
    ("attributes", "capacity", "problem"),
    [
        ({"a": {"float": 1.5}}, {}, "attribute a: unsupported attribute value"),
        ({"a": {"version": "1"}}, {}, "attribute a: '1' is not a semantic version"),
        ({}, {"m": {"value": "much"}}, "capacity m: 'much' is not a quantity"),
    ],
)
def test_values_that_make_no_sense_are_errors_of_the_evaluation(attributes, capacity, problem: str):
    view = DeviceView.from_json({"attributes": attributes, "capacity": capacity}, "d")
    with pytest.raises(cel.CelRuntimeError, match=problem):
        matches("true", view)


def test_half_a_surrogate_pair_is_what_go_makes_of_it():
    view = DeviceView("d", {"s": "\ud800"})
    assert matches("device.attributes['d'].s == '\ufffd' && bytes(device.attributes['d'].s) == b'\ufffd'", view)
    assert matches("device.attributes['d'].s == '\ud800'", view)


def test_a_list_needs_its_feature():
    view = DeviceView("d", {"a": [1, 2]})
    scalars = cel.compile("true", cel.Features(list_type_attributes=False))
    with pytest.raises(cel.CelRuntimeError, match="attribute a: unsupported attribute value"):
        scalars.matches(view)
    assert matches("true", view)
