from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import Features, constraints
from dra_sdk.tools.scheduling.allocator.behaviour import SINCE_1_37, UP_TO_1_36, Behaviour
from dra_sdk.tools.scheduling.allocator.constraints import Constraint, value_of
from dra_sdk.tools.scheduling.allocator.devices import Contents, PoolDevice
from dra_sdk.tools.scheduling.allocator.requests import Request, parse
from dra_sdk.tools.scheduling.allocator.slices import SliceView
from tests.tools.scheduling.allocator.build import (
    DRIVER,
    NEWER,
    a_slice,
    claim,
    device_class,
    first_available,
    request,
    wish,
)

ATTRIBUTE = f"{DRIVER}/x"


def having(**values: Any) -> PoolDevice:
    """A device whose attribute x is `kind=value`; without any, it has none."""
    raw = {"name": "gpu-0", **({"attributes": {"x": values}} if values else {})}
    return SliceView(a_slice(raw), 0, Contents()).devices[0]


def asked(*raw: dict[str, Any]) -> list[Request]:
    return list(parse(claim(*raw), {"gpu": device_class()}, Features()).requests)


R, Q = asked(request("r"), request("q"))


def match(*requests: str, lists: bool = True, behaviour: Behaviour = UP_TO_1_36) -> Constraint:
    features = Features(list_attributes=lists, behaviour=behaviour)
    return constraints.of({"matchAttribute": ATTRIBUTE, "requests": list(requests)}, features)


def distinct(*requests: str, lists: bool = True, behaviour: Behaviour = UP_TO_1_36) -> Constraint:
    features = Features(list_attributes=lists, behaviour=behaviour)
    return constraints.of({"distinctAttribute": ATTRIBUTE, "requests": list(requests)}, features)


both = pytest.mark.parametrize("behaviour", [UP_TO_1_36, SINCE_1_37], ids=["1.36", "1.37"])


@both
@pytest.mark.parametrize("lists", [True, False])
def test_devices_must_agree(lists: bool, behaviour: Behaviour) -> None:
    found = match(lists=lists, behaviour=behaviour)
    assert found.add(R, having(int=1))
    assert not found.add(R, having(int=2))
    assert not found.add(R, having(string="1"))
    assert not found.add(R, having())
    assert found.add(Q, having(int=1))


@both
@pytest.mark.parametrize("lists", [True, False])
def test_devices_must_differ(lists: bool, behaviour: Behaviour) -> None:
    found = distinct(lists=lists, behaviour=behaviour)
    assert found.add(R, having(string="a"))
    assert not found.add(Q, having(string="a"))
    assert not found.add(Q, having())
    assert found.add(Q, having(string="b"))


def test_true_and_one_are_different_values() -> None:
    found = match()
    assert found.add(R, having(bool=True))
    assert not found.add(R, having(int=1))


@both
def test_lists_agree_in_a_common_value(behaviour: Behaviour) -> None:
    found = match(behaviour=behaviour)
    assert found.add(R, having(strings=["a", "b"]))
    assert found.add(R, having(strings=["b", "c"]))
    assert not found.add(R, having(strings=["a", "c"]))
    assert found.add(R, having(string="b"))


@both
def test_lists_differ_when_no_value_is_common(behaviour: Behaviour) -> None:
    found = distinct(behaviour=behaviour)
    assert found.add(R, having(ints=[1, 2]))
    assert not found.add(Q, having(ints=[2, 3]))
    assert found.add(Q, having(int=3))


def test_without_the_feature_lists_are_unknown() -> None:
    found = match(lists=False)
    assert found.add(R, having(strings=["a"]))
    assert not found.add(R, having(strings=["a"]))
    assert not match().add(R, having(strings=[]))


@both
def test_a_device_that_is_taken_back_leaves_room(behaviour: Behaviour) -> None:
    found = match(behaviour=behaviour)
    assert found.add(R, having(int=1))
    found.remove(R)
    assert found.add(R, having(int=2))


def test_constraints_are_about_the_requests_they_name() -> None:
    big, small = asked(first_available("r", big=wish(), small=wish()))
    assert match("r").applies(big)
    assert match("r/big").applies(big)
    assert not match("r/big").applies(small)
    assert match().applies(R)
    found = match("q")
    assert found.add(R, having())
    found.remove(R)
    assert not found.add(Q, having())


def test_taking_a_device_back_does_not_widen_what_is_common() -> None:
    found = match()
    assert found.add(R, having(strings=["a", "b"]))
    assert found.add(R, having(strings=["b"]))
    found.remove(R)
    assert found.keeps_traces
    assert not found.add(R, having(strings=["a"]))
    assert not match(lists=False).keeps_traces


def test_of_a_request_only_the_last_device_is_remembered() -> None:
    found = distinct()
    assert found.add(R, having(string="a"))
    assert found.add(R, having(string="b"))
    assert found.add(R, having(string="a"))
    found.remove(R)
    assert found.add(R, having(string="b"))


def test_the_first_device_is_not_looked_at() -> None:
    found = distinct(lists=False)
    assert found.add(R, having(strings=["a"]))
    assert not found.add(Q, having(strings=["a"]))
    found.remove(R)
    assert found.add(Q, having(string="a"))


def test_since_1_37_taking_a_device_back_widens_what_is_common() -> None:
    found = match(behaviour=SINCE_1_37)
    assert found.add(R, having(strings=["a", "b"]))
    assert found.add(R, having(strings=["b"]))
    found.remove(R)
    assert not found.keeps_traces
    assert found.add(R, having(strings=["a"]))


def test_since_1_37_all_devices_of_a_request_are_remembered() -> None:
    found = distinct(behaviour=SINCE_1_37)
    assert found.add(R, having(string="a"))
    assert found.add(R, having(string="b"))
    assert not found.add(R, having(string="a"))
    assert not found.forgets
    assert found.excludes(R, having(string="a"))
    found.remove(R)
    assert found.add(R, having(string="b"))
    assert not found.add(Q, having(string="a"))


@pytest.mark.parametrize("lists", [True, False])
def test_since_1_37_only_without_lists_an_unknown_value_may_come_first(lists: bool) -> None:
    found = distinct(lists=lists, behaviour=SINCE_1_37)
    assert found.add(R, having(strings=[])) is not lists
    assert not found.add(Q, having(strings=[])) or lists


def test_a_request_may_say_what_the_attribute_is() -> None:
    expression = f'device.attributes["{DRIVER}"].y'
    raw = request("r", derivedAttributes=[{"name": ATTRIBUTE, "expression": expression}])
    (deriving,) = parse(claim(raw), {"gpu": device_class()}, NEWER).requests
    found = constraints.of({"matchAttribute": ATTRIBUTE}, NEWER)
    y_is_one = {"name": "gpu-0", "attributes": {"x": {"int": 5}, "y": {"int": 1}}}
    assert found.add(deriving, SliceView(a_slice(y_is_one), 0, Contents()).devices[0])
    assert not found.add(R, having(int=5))
    assert found.add(R, having(int=1))


def test_values_have_kinds() -> None:
    assert value_of({"version": "1.0.0"}, lists=True) == ("version", frozenset({"1.0.0"}))
    assert value_of({"bools": [True, True]}, lists=True) == ("bool", frozenset({True}))
    assert value_of({}, lists=True) is None
    assert value_of({"bools": [True]}, lists=False) is None
