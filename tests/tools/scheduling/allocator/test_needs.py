from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import Allocated, AllocationError, Features, Inventory
from dra_sdk.tools.scheduling.allocator.choices import Choices
from dra_sdk.tools.scheduling.allocator.needs import Need, Needs
from dra_sdk.tools.scheduling.allocator.requests import parse
from dra_sdk.tools.scheduling.allocator.selectors import Selectors
from tests.tools.scheduling.allocator.build import (
    a_slice,
    claim,
    device,
    device_class,
    first_available,
    node,
    request,
    wish,
)

ALL = {"allocationMode": "All"}


def of(*requests: dict[str, Any], features: Features | None = None) -> Needs:
    features = features or Features()
    return Needs(parse(claim(*requests), {"gpu": device_class()}, features), Selectors(features.cel), features)


def on(needs: Needs, *slices: dict[str, Any]) -> list[Need]:
    choices = Choices([needs.plan], Allocated(), Features())
    return list(needs.on(Inventory(slices).view(node()), choices).values())


def test_a_number_of_devices_is_the_same_everywhere() -> None:
    needs = of(request("r", count=3))
    first = needs.first()
    assert first
    assert (first.count, first.every) == (3, None)
    assert on(needs) == [first]


def test_all_devices_are_those_that_are_selected_even_if_in_use() -> None:
    (need,) = on(of(request("r", 'device.attributes["gpu.example.com"].n > 0', **ALL)), a_slice(*many(4)))
    assert need.every
    assert [each.id.device for each in need.every] == ["gpu-1", "gpu-2", "gpu-3"]
    assert need.count == 3


def many(count: int) -> list[dict[str, Any]]:
    return [device(f"gpu-{index}", n=index) for index in range(count)]


def test_what_comes_first_is_unknown_where_something_has_to_be_chosen() -> None:
    assert of(first_available("r", a=wish())).first() is None
    assert of(request("r", **ALL)).first() is None
    assert of().first() is None


@pytest.mark.parametrize(
    ("slices", "state"),
    [([a_slice(device("a"), count=2)], "being updated"), ([a_slice(device("a"), device("a"))], "invalid")],
)
def test_all_devices_of_a_broken_pool_cannot_be_known(slices: list[dict[str, Any]], state: str) -> None:
    problem = f"claim ns/c, request r: asks for all devices, but resource pool gpu.example.com/n1 is currently {state}"
    with pytest.raises(AllocationError, match=problem):
        on(of(request("r", **ALL)), *slices)


def test_a_claim_cannot_get_more_than_32_devices() -> None:
    problem = "claim ns/c: number of requested devices 33 exceeds the claim limit of 32"
    with pytest.raises(AllocationError, match=problem):
        of(request("r", count=20), request("q", count=13))
    with pytest.raises(AllocationError, match=problem):
        on(of(request("r", **ALL)), a_slice(*many(33)))
    assert of(first_available("r", many=wish(count=40), few=wish(count=2)))


def test_devices_that_bind_need_the_feature() -> None:
    binds = a_slice(device("a") | {"bindingConditions": ["ready"]})
    candidate = Inventory([binds]).view(node()).candidates[0]
    for on_or_off in (True, False):
        need = of(request("r"), features=Features(binding_conditions=on_or_off)).first()
        assert need
        assert need.selectable(candidate) is on_or_off
