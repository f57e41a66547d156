from __future__ import annotations

from typing import Any

from dra_sdk.tools.scheduling.allocator import Allocated, Features
from dra_sdk.tools.scheduling.allocator.choices import Choices
from dra_sdk.tools.scheduling.allocator.eligible import Eligible, hopeless, survey
from dra_sdk.tools.scheduling.allocator.needs import Need, Needs
from dra_sdk.tools.scheduling.allocator.requests import parse
from dra_sdk.tools.scheduling.allocator.selectors import Selectors
from tests.tools.scheduling.allocator.build import (
    a_slice,
    candidates,
    claim,
    device,
    device_class,
    held,
    of_1_37,
    request,
    shared,
)

GPUS = candidates(a_slice(device("a", n=1), device("b", n=2), device("c"), device("d", n=3)))
N = 'device.attributes["gpu.example.com"].n > 1'


def need(raw: dict[str, Any], features: Features | None = None) -> tuple[Need, Needs]:
    features = features or Features()
    needs = Needs(parse(claim(raw), {"gpu": device_class()}, features), Selectors(features.cel), features)
    first = needs.first()
    assert first
    return first, needs


def eligible(raw: dict[str, Any], *used: str) -> Eligible:
    first, needs = need(raw)
    return Eligible(0, first, GPUS, Choices([needs.plan], Allocated.of([held(*used)]), Features()))


def test_free_devices_that_are_selected() -> None:
    found = eligible(request("r", "device.driver != ''"), "b")
    assert found.reach(3)
    assert not found.reach(4)
    assert [found[index].id.device for index in range(3)] == ["a", "c", "d"]


def test_it_looks_no_further_than_asked() -> None:
    found = eligible(request("r", N))  # which has no answer for c
    assert found.reach(1)
    assert found[0].id.device == "b"


def test_capacity_counts() -> None:
    assert not eligible(request("r", capacity={"requests": {"memory": "1"}})).reach(1)


def test_too_few_devices_are_hopeless() -> None:
    first, _ = need(request("r", 'device.attributes["gpu.example.com"].?n.orValue(0) > 1', count=2))
    taken = Allocated.of([held("b")]).devices
    assert not hopeless(first, GPUS, ())
    assert hopeless(first, GPUS, taken)
    assert hopeless(first, [], ())


def test_admin_access_is_never_hopeless_for_what_others_have() -> None:
    first, _ = need(request("r", adminAccess=True))
    assert not hopeless(first, GPUS, {each.id for each in GPUS})


def test_a_survey_counts_what_could_be_had() -> None:
    all_of_them, _ = need(request("r"))
    assert survey(all_of_them, GPUS, Allocated.of([held("b")]).devices) == 3
    some, _ = need(request("r", N))
    assert survey(some, GPUS, ()) is None
    assert survey(some, GPUS, Allocated.of([held("c")]).devices) == 2


def test_tainted_devices_are_not_eligible() -> None:
    tainted = candidates(a_slice(device("a") | {"taints": [{"key": "k", "effect": "NoExecute"}]}, device("b")))
    first, needs = need(request("r"))
    found = Eligible(0, first, tainted, Choices([needs.plan], Allocated(), Features()))
    assert found.reach(1)
    assert found[0].id.device == "b"
    assert not found.reach(2)


def test_where_asking_for_capacity_is_an_error_nothing_is_left_out() -> None:
    policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
    shares = [shared(name, capacity={"cores": {"value": "4", "requestPolicy": policy}}) for name in ("a", "b")]
    found = candidates(a_slice(*shares))
    for asked, error in (("1500m", False), ("1000500u", True)):
        raw = request("r", count=3, capacity={"requests": {"cores": asked}})
        first, _ = need(raw, of_1_37())
        assert hopeless(first, found, ()) is not error
        assert survey(first, found, ()) == (None if error else 2)
        off, _ = need(request("r", count=3), of_1_37(DRAConsumableCapacity=False))
        assert hopeless(off, found, ())
