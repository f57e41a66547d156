from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.claim_requests import ParsedRequest, parse_claim
from dra_sdk.tools.scheduling.allocator.constraints import Constraint, attribute_values, make_constraint
from dra_sdk.tools.scheduling.allocator.devices import ContentCache, PoolDevice, PoolSlice
from dra_sdk.tools.scheduling.allocator.features import SINCE_1_37, UP_TO_1_36, ReleaseBehaviour
from tests.tools.scheduling.allocator.build import (
    DRIVER,
    NEWER,
    a_slice,
    claim,
    device_class,
    exact_request,
    first_available,
    request,
)

ATTRIBUTE = f"{DRIVER}/x"


def having(**values: Any) -> PoolDevice:
    """A device whose attribute x is `kind=value`; without any, it has none."""
    raw = {"name": "gpu-0", **({"attributes": {"x": values}} if values else {})}
    return PoolSlice(a_slice(raw), 0, ContentCache()).devices[0]


def requests_of(*raw: dict[str, Any]) -> list[ParsedRequest]:
    return list(parse_claim(claim(*raw), {"gpu": device_class()}, SchedulerFeatures()).requests)


R, Q = requests_of(request("r"), request("q"))


def match(*requests: str, lists: bool = True, behaviour: ReleaseBehaviour = UP_TO_1_36) -> Constraint:
    features = SchedulerFeatures(list_attributes=lists, behaviour=behaviour)
    return make_constraint({"matchAttribute": ATTRIBUTE, "requests": list(requests)}, features)


def distinct(*requests: str, lists: bool = True, behaviour: ReleaseBehaviour = UP_TO_1_36) -> Constraint:
    features = SchedulerFeatures(list_attributes=lists, behaviour=behaviour)
    return make_constraint({"distinctAttribute": ATTRIBUTE, "requests": list(requests)}, features)


both = pytest.mark.parametrize("behaviour", [UP_TO_1_36, SINCE_1_37], ids=["1.36", "1.37"])


@both
@pytest.mark.parametrize("lists", [True, False])
def test_match_attribute_needs_equal_values(lists: bool, behaviour: ReleaseBehaviour) -> None:
    constraint = match(lists=lists, behaviour=behaviour)
    assert constraint.add(R, having(int=1))
    assert not constraint.add(R, having(int=2))
    assert not constraint.add(R, having(string="1"))
    assert not constraint.add(R, having())
    assert constraint.add(Q, having(int=1))


@both
@pytest.mark.parametrize("lists", [True, False])
def test_distinct_attribute_needs_different_values(lists: bool, behaviour: ReleaseBehaviour) -> None:
    constraint = distinct(lists=lists, behaviour=behaviour)
    assert constraint.add(R, having(string="a"))
    assert not constraint.add(Q, having(string="a"))
    assert not constraint.add(Q, having())
    assert constraint.add(Q, having(string="b"))


def test_true_and_1_are_different_values() -> None:
    constraint = match()
    assert constraint.add(R, having(bool=True))
    assert not constraint.add(R, having(int=1))


@both
def test_lists_match_if_they_have_a_common_value(behaviour: ReleaseBehaviour) -> None:
    constraint = match(behaviour=behaviour)
    assert constraint.add(R, having(strings=["a", "b"]))
    assert constraint.add(R, having(strings=["b", "c"]))
    assert not constraint.add(R, having(strings=["a", "c"]))
    assert constraint.add(R, having(string="b"))


@both
def test_lists_are_distinct_if_they_have_no_common_value(behaviour: ReleaseBehaviour) -> None:
    constraint = distinct(behaviour=behaviour)
    assert constraint.add(R, having(ints=[1, 2]))
    assert not constraint.add(Q, having(ints=[2, 3]))
    assert constraint.add(Q, having(int=3))


def test_without_the_feature_lists_are_unknown_values() -> None:
    constraint = match(lists=False)
    assert constraint.add(R, having(strings=["a"]))
    assert not constraint.add(R, having(strings=["a"]))
    assert not match().add(R, having(strings=[]))


@both
def test_after_removing_a_device_another_can_be_added(behaviour: ReleaseBehaviour) -> None:
    constraint = match(behaviour=behaviour)
    assert constraint.add(R, having(int=1))
    constraint.remove(R)
    assert constraint.add(R, having(int=2))


def test_constraints_apply_to_the_requests_they_name() -> None:
    big, small = requests_of(first_available("r", big=exact_request(), small=exact_request()))
    assert match("r").applies_to(big)
    assert match("r/big").applies_to(big)
    assert not match("r/big").applies_to(small)
    assert match().applies_to(R)
    constraint = match("q")
    assert constraint.add(R, having())
    constraint.remove(R)
    assert not constraint.add(Q, having())


def test_removing_a_device_does_not_restore_the_shared_values() -> None:
    constraint = match()
    assert constraint.add(R, having(strings=["a", "b"]))
    assert constraint.add(R, having(strings=["b"]))
    constraint.remove(R)
    assert constraint.depends_on_removed
    assert not constraint.add(R, having(strings=["a"]))
    assert not match(lists=False).depends_on_removed


def test_only_the_last_device_of_a_request_is_remembered() -> None:
    constraint = distinct()
    assert constraint.add(R, having(string="a"))
    assert constraint.add(R, having(string="b"))
    assert constraint.add(R, having(string="a"))
    constraint.remove(R)
    assert constraint.add(R, having(string="b"))


def test_the_value_of_the_first_device_is_not_checked() -> None:
    constraint = distinct(lists=False)
    assert constraint.add(R, having(strings=["a"]))
    assert not constraint.add(Q, having(strings=["a"]))
    constraint.remove(R)
    assert constraint.add(Q, having(string="a"))


def test_since_1_37_removing_a_device_restores_the_shared_values() -> None:
    constraint = match(behaviour=SINCE_1_37)
    assert constraint.add(R, having(strings=["a", "b"]))
    assert constraint.add(R, having(strings=["b"]))
    constraint.remove(R)
    assert not constraint.depends_on_removed
    assert constraint.add(R, having(strings=["a"]))


def test_since_1_37_all_devices_of_a_request_are_remembered() -> None:
    constraint = distinct(behaviour=SINCE_1_37)
    assert constraint.add(R, having(string="a"))
    assert constraint.add(R, having(string="b"))
    assert not constraint.add(R, having(string="a"))
    assert not constraint.forgets_on_removal
    assert constraint.excludes(R, having(string="a"))
    constraint.remove(R)
    assert constraint.add(R, having(string="b"))
    assert not constraint.add(Q, having(string="a"))


@pytest.mark.parametrize("lists", [True, False])
def test_since_1_37_an_unknown_value_may_come_first_only_without_lists(lists: bool) -> None:
    constraint = distinct(lists=lists, behaviour=SINCE_1_37)
    assert constraint.add(R, having(strings=[])) is not lists
    assert not constraint.add(Q, having(strings=[])) or lists


def test_a_request_may_derive_the_attribute() -> None:
    expression = f'device.attributes["{DRIVER}"].y'
    raw = request("r", derivedAttributes=[{"name": ATTRIBUTE, "expression": expression}])
    (deriving,) = parse_claim(claim(raw), {"gpu": device_class()}, NEWER).requests
    constraint = make_constraint({"matchAttribute": ATTRIBUTE}, NEWER)
    y_is_one = {"name": "gpu-0", "attributes": {"x": {"int": 5}, "y": {"int": 1}}}
    assert constraint.add(deriving, PoolSlice(a_slice(y_is_one), 0, ContentCache()).devices[0])
    assert not constraint.add(R, having(int=5))
    assert constraint.add(R, having(int=1))


def test_attribute_values_have_a_type() -> None:
    assert attribute_values({"version": "1.0.0"}, lists=True) == ("version", frozenset({"1.0.0"}))
    assert attribute_values({"bools": [True, True]}, lists=True) == ("bool", frozenset({True}))
    assert attribute_values({}, lists=True) is None
    assert attribute_values({"bools": [True]}, lists=False) is None
