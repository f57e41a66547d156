from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import AllocatedState, AllocationError, Inventory, SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.claim_requests import parse_claim
from dra_sdk.tools.scheduling.allocator.device_choices import DeviceChoices
from dra_sdk.tools.scheduling.allocator.eligible_devices import (
    ClaimNeeds,
    EligibleDevices,
    RequestNeed,
    count_selected,
    has_too_few_devices,
)
from dra_sdk.tools.scheduling.allocator.selectors import SelectorCache
from tests.tools.scheduling.allocator.build import (
    a_slice,
    candidates,
    claim,
    device,
    device_class,
    exact_request,
    first_available,
    held,
    node,
    of_1_37,
    request,
    shared,
)

ALL = {"allocationMode": "All"}


def needs_of(*requests: dict[str, Any], features: SchedulerFeatures | None = None) -> ClaimNeeds:
    features = features or SchedulerFeatures()
    return ClaimNeeds(
        parse_claim(claim(*requests), {"gpu": device_class()}, features), SelectorCache(features.cel), features
    )


def on(needs: ClaimNeeds, *slices: dict[str, Any]) -> list[RequestNeed]:
    choices = DeviceChoices([needs.parsed_claim], AllocatedState(), SchedulerFeatures())
    return list(needs.on_node(Inventory(slices).node_devices(node()), choices).values())


def test_the_number_of_devices_is_the_same_on_every_node() -> None:
    needs = needs_of(request("r", count=3))
    first = needs.first_need()
    assert first
    assert (first.count, first.all_devices) == (3, None)
    assert on(needs) == [first]


def test_mode_all_includes_selected_devices_in_use() -> None:
    (need,) = on(needs_of(request("r", 'device.attributes["gpu.example.com"].n > 0', **ALL)), a_slice(*many(4)))
    assert need.all_devices
    assert [candidate.id.device for candidate in need.all_devices] == ["gpu-1", "gpu-2", "gpu-3"]
    assert need.count == 3


def many(count: int) -> list[dict[str, Any]]:
    return [device(f"gpu-{index}", n=index) for index in range(count)]


def test_the_first_need_is_unknown_for_alternatives_and_mode_all() -> None:
    assert needs_of(first_available("r", a=exact_request())).first_need() is None
    assert needs_of(request("r", **ALL)).first_need() is None
    assert needs_of().first_need() is None


@pytest.mark.parametrize(
    ("slices", "state"),
    [([a_slice(device("a"), count=2)], "being updated"), ([a_slice(device("a"), device("a"))], "invalid")],
)
def test_mode_all_fails_for_an_incomplete_or_invalid_pool(slices: list[dict[str, Any]], state: str) -> None:
    problem = f"claim ns/c, request r: asks for all devices, but resource pool gpu.example.com/n1 is currently {state}"
    with pytest.raises(AllocationError, match=problem):
        on(needs_of(request("r", **ALL)), *slices)


def test_a_claim_cannot_get_more_than_32_devices() -> None:
    problem = "claim ns/c: number of requested devices 33 exceeds the claim limit of 32"
    with pytest.raises(AllocationError, match=problem):
        needs_of(request("r", count=20), request("q", count=13))
    with pytest.raises(AllocationError, match=problem):
        on(needs_of(request("r", **ALL)), a_slice(*many(33)))
    assert needs_of(first_available("r", many=exact_request(count=40), few=exact_request(count=2)))


def test_devices_with_binding_conditions_need_the_feature() -> None:
    binds = a_slice(device("a") | {"bindingConditions": ["ready"]})
    candidate = Inventory([binds]).node_devices(node()).candidates[0]
    for on_or_off in (True, False):
        need = needs_of(request("r"), features=SchedulerFeatures(binding_conditions=on_or_off)).first_need()
        assert need
        assert need.is_selected(candidate) is on_or_off


GPUS = candidates(a_slice(device("a", n=1), device("b", n=2), device("c"), device("d", n=3)))
N = 'device.attributes["gpu.example.com"].n > 1'


def need(raw: dict[str, Any], features: SchedulerFeatures | None = None) -> tuple[RequestNeed, ClaimNeeds]:
    features = features or SchedulerFeatures()
    needs = ClaimNeeds(
        parse_claim(claim(raw), {"gpu": device_class()}, features), SelectorCache(features.cel), features
    )
    first = needs.first_need()
    assert first
    return first, needs


def eligible(raw: dict[str, Any], *used: str) -> EligibleDevices:
    first, needs = need(raw)
    return EligibleDevices(
        0, first, GPUS, DeviceChoices([needs.parsed_claim], AllocatedState.of([held(*used)]), SchedulerFeatures())
    )


def test_free_devices_that_are_selected() -> None:
    usable = eligible(request("r", "device.driver != ''"), "b")
    assert usable.has_at_least(3)
    assert not usable.has_at_least(4)
    assert [usable[index].id.device for index in range(3)] == ["a", "c", "d"]


def test_no_more_devices_are_examined_than_needed() -> None:
    usable = eligible(request("r", N))  # which fails for c
    assert usable.has_at_least(1)
    assert usable[0].id.device == "b"


def test_devices_without_the_capacity_are_not_eligible() -> None:
    assert not eligible(request("r", capacity={"requests": {"memory": "1"}})).has_at_least(1)


def test_too_few_devices_are_detected() -> None:
    first, _ = need(request("r", 'device.attributes["gpu.example.com"].?n.orValue(0) > 1', count=2))
    unavailable = AllocatedState.of([held("b")]).devices
    assert not has_too_few_devices(first, GPUS, ())
    assert has_too_few_devices(first, GPUS, unavailable)
    assert has_too_few_devices(first, [], ())


def test_admin_access_does_not_need_free_devices() -> None:
    first, _ = need(request("r", adminAccess=True))
    assert not has_too_few_devices(first, GPUS, {gpu.id for gpu in GPUS})


def test_selected_devices_are_counted() -> None:
    all_of_them, _ = need(request("r"))
    assert count_selected(all_of_them, GPUS, AllocatedState.of([held("b")]).devices) == 3
    some, _ = need(request("r", N))
    assert count_selected(some, GPUS, ()) is None
    assert count_selected(some, GPUS, AllocatedState.of([held("c")]).devices) == 2


def test_tainted_devices_are_not_eligible() -> None:
    tainted = candidates(a_slice(device("a") | {"taints": [{"key": "k", "effect": "NoExecute"}]}, device("b")))
    first, needs = need(request("r"))
    usable = EligibleDevices(
        0, first, tainted, DeviceChoices([needs.parsed_claim], AllocatedState(), SchedulerFeatures())
    )
    assert usable.has_at_least(1)
    assert usable[0].id.device == "b"
    assert not usable.has_at_least(2)


def test_no_device_is_excluded_if_the_capacity_request_is_an_error() -> None:
    policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
    shares = [shared(name, capacity={"cores": {"value": "4", "requestPolicy": policy}}) for name in ("a", "b")]
    shared_gpus = candidates(a_slice(*shares))
    for amount, error in (("1500m", False), ("1000500u", True)):
        raw = request("r", count=3, capacity={"requests": {"cores": amount}})
        first, _ = need(raw, of_1_37())
        assert has_too_few_devices(first, shared_gpus, ()) is not error
        assert count_selected(first, shared_gpus, ()) == (None if error else 2)
        off, _ = need(request("r", count=3), of_1_37(DRAConsumableCapacity=False))
        assert has_too_few_devices(off, shared_gpus, ())
