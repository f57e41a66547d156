from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import AllocatedState, AllocationError, SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.claim_requests import ParsedClaim, parse_claim
from dra_sdk.tools.scheduling.allocator.device_choices import DeviceChoice, DeviceChoices
from tests.tools.scheduling.allocator.build import (
    DRIVER,
    NEWER,
    a_slice,
    candidates,
    claim,
    consumes,
    counter_sets,
    device,
    device_class,
    held,
    of_1_37,
    request,
    shared,
)


class ClaimsUnderTest:
    """The choices for claims that each have one request."""

    def __init__(
        self,
        *raw: dict[str, Any],
        held: AllocatedState | None = None,
        features: SchedulerFeatures | None = None,
        **devices: Any,
    ) -> None:
        features = features or SchedulerFeatures()
        self.parsed_claims: list[ParsedClaim] = [
            parse_claim(claim(raw_request, **devices), {"gpu": device_class()}, features)
            for raw_request in raw or [request("r")]
        ]
        self.choices = DeviceChoices(self.parsed_claims, held or AllocatedState(), features)

    def choose(self, candidate: Any, index: int = 0, *, required: bool = False) -> DeviceChoice | None:
        return self.choices.choose(index, next(iter(self.parsed_claims[index].requests)), candidate, required=required)


def test_a_device_is_chosen_once() -> None:
    (gpu,) = candidates(a_slice(device("a")))
    claims = ClaimsUnderTest(request("r"), request("r"))
    choice = claims.choose(gpu)
    assert isinstance(choice, DeviceChoice)
    assert claims.choose(gpu, 1) is None
    claims.choices.undo(choice)
    assert isinstance(claims.choose(gpu, 1), DeviceChoice)
    assert [len(chosen) for chosen in claims.choices.by_claim] == [0, 1]


def test_allocated_devices_are_in_use_except_for_admin_access() -> None:
    (gpu,) = candidates(a_slice(device("a")))
    claims = ClaimsUnderTest(request("r"), request("r", adminAccess=True), held=AllocatedState.of([held("a")]))
    assert claims.choose(gpu) is None
    choice = claims.choose(gpu, 1)
    assert isinstance(choice, DeviceChoice)
    assert claims.choose(gpu, 1) is None


def test_a_device_with_admin_access_is_in_use_for_other_claimsof_the_pod() -> None:
    (gpu,) = candidates(a_slice(device("a")))
    claims = ClaimsUnderTest(request("r", adminAccess=True), request("r"), request("r", adminAccess=True))
    assert isinstance(claims.choose(gpu), DeviceChoice)
    assert claims.choose(gpu, 1) is None
    second = claims.choose(gpu, 2)
    assert isinstance(second, DeviceChoice)
    claims.choices.undo(second)
    assert claims.choose(gpu, 1) is None


@pytest.mark.parametrize(
    ("effect", "tolerations", "refused"),
    [
        ("NoSchedule", [], True),
        ("NoExecute", [{"key": "other", "operator": "Exists"}], True),
        ("NoSchedule", [{"operator": "Exists"}], False),
        ("None", [], False),
    ],
)
def test_taints(effect: str, tolerations: list[dict[str, Any]], refused: bool) -> None:
    (gpu,) = candidates(a_slice(device("a") | {"taints": [{"key": "k", "effect": effect}]}))
    assert (ClaimsUnderTest(request("r", tolerations=tolerations)).choose(gpu) is None) is refused
    off = ClaimsUnderTest(request("r"), features=SchedulerFeatures(device_taints=False))
    assert isinstance(off.choose(gpu), DeviceChoice)


def partitions() -> list[Any]:
    devices = [device(name) | consumes(memory="3") for name in ("a", "b")]
    return candidates(counter_sets(set={"memory": "4"}), a_slice(*devices, count=2))


def test_counters_are_released_with_the_device() -> None:
    a, b = partitions()
    claims = ClaimsUnderTest(request("r"), request("r"))
    choice = claims.choose(a)
    assert isinstance(choice, DeviceChoice)
    assert claims.choose(b, 1) is None
    claims.choices.undo(choice)
    assert isinstance(claims.choose(b, 1), DeviceChoice)


def test_without_the_feature_devices_with_counters_are_rejected() -> None:
    (gpu,) = candidates(counter_sets(set={"memory": "4"}), a_slice(device("a") | consumes(memory="1"), count=2))
    claims = ClaimsUnderTest(features=SchedulerFeatures(partitionable_devices=False))
    assert claims.choose(gpu) is None


def test_a_rejected_device_is_removed_from_other_constraints() -> None:
    constraints = [{"matchAttribute": f"{DRIVER}/numa"}, {"matchAttribute": f"{DRIVER}/model"}]
    gpus = candidates(a_slice(device("a", numa=0, model="x"), device("b", numa=0, model="y"), device("c", numa=1)))
    claims = ClaimsUnderTest(request("r", count=3), constraints=constraints)
    first = claims.choose(gpus[0])
    assert isinstance(first, DeviceChoice)
    assert claims.choose(gpus[1]) is None
    claims.choices.undo(first)
    assert claims.choose(gpus[2]) is None
    assert isinstance(claims.choose(gpus[1]), DeviceChoice)


def test_a_constraint_that_rejects_a_required_device_is_an_error() -> None:
    (gpu,) = candidates(a_slice(device("a") | consumes(memory="1"), count=2), counter_sets(set={"memory": "1"}))
    claims = ClaimsUnderTest(request("r", allocationMode="All"), constraints=[{"matchAttribute": "a/b"}])
    problem = "claim ns/c, request r: cannot add device gpu.example.com/n1/a because a claim constraint"
    with pytest.raises(AllocationError, match=problem):
        claims.choose(gpu, required=True)
    assert not any(claims.choices.counters.consumed(gpu.pool).values())


def memory(value: str) -> dict[str, Any]:
    return {"requests": {"memory": value}}


def test_shares_fill_a_device() -> None:
    (gpu,) = candidates(a_slice(shared("a", capacity={"memory": "4"})))
    claims = ClaimsUnderTest(*(request("r", capacity=memory(amount)) for amount in ("3", "2", "1")))
    first = claims.choose(gpu, required=True)
    assert isinstance(first, DeviceChoice)
    assert [(consumption.name, consumption.amount.text) for consumption in first.consumed] == [("memory", "3")]
    assert claims.choose(gpu, 1, required=True) is None
    assert isinstance(claims.choose(gpu, 2, required=True), DeviceChoice)


def test_capacity_is_released_and_that_of_other_claimscounts() -> None:
    (gpu,) = candidates(a_slice(shared("a", capacity={"memory": "4"})))
    used = AllocatedState.of([held("a", shareID="x", consumedCapacity={"memory": "2"})])
    claims = ClaimsUnderTest(request("r", capacity=memory("2")), request("r", capacity=memory("1")), held=used)
    wanted = next(iter(claims.parsed_claims[1].requests))
    choice = claims.choose(gpu)
    assert isinstance(choice, DeviceChoice)
    assert not claims.choices.has_capacity(wanted, gpu.device)
    claims.choices.undo(choice)
    assert claims.choices.has_capacity(wanted, gpu.device)


def test_shares_of_a_partition_consume_its_counters_once() -> None:
    both = [shared(name, capacity={"memory": "4"}) | consumes(memory="3") for name in ("a", "b")]
    a, b = candidates(counter_sets(set={"memory": "4"}), a_slice(*both, count=2))
    claims = ClaimsUnderTest(*(request("r", capacity=memory("1")) for _ in range(3)))
    first, second = claims.choose(a), claims.choose(a, 1)
    assert isinstance(first, DeviceChoice)
    assert isinstance(second, DeviceChoice)
    assert claims.choose(b, 2) is None
    claims.choices.undo(second)
    assert claims.choose(b, 2) is None
    claims.choices.undo(first)
    assert isinstance(claims.choose(b, 2), DeviceChoice)


@pytest.mark.parametrize(("features", "refused"), [(SchedulerFeatures(), True), (of_1_37(), False)])
def test_since_1_37_a_share_without_capacity_keeps_the_counters(features: SchedulerFeatures, refused: bool) -> None:
    both = a_slice(shared("a") | consumes(memory="3"), count=2)
    (gpu,) = candidates(counter_sets(set={"memory": "4"}), both, features=features)
    claims = ClaimsUnderTest(request("r"), held=AllocatedState.of([held("a", shareID="x")]), features=features)
    assert (claims.choose(gpu) is None) is refused


def test_devices_with_incompatible_groups() -> None:
    devices = [device(name) | consumes(memory="1") for name in ("a", "b")]
    for raw_device, groups in zip(devices, ("x", "y"), strict=True):
        raw_device["consumesCounters"][0]["compatibilityGroups"] = [groups]
    slices = counter_sets(set={"memory": "9"}), a_slice(*devices, count=2)
    a, b = candidates(*slices, features=NEWER)
    claims = ClaimsUnderTest(request("r"), request("r"), features=NEWER)
    choice = claims.choose(a)
    assert isinstance(choice, DeviceChoice)
    assert claims.choose(b, 1) is None
    claims.choices.undo(choice)
    assert isinstance(claims.choose(b, 1), DeviceChoice)


def test_a_device_that_skips_operations_needs_a_node_that_supports_it() -> None:
    (gpu,) = candidates(a_slice(device("a"), skipNodeOperations=["*"]))
    assert ClaimsUnderTest(features=NEWER).choose(gpu) is None
    assert isinstance(ClaimsUnderTest(features=of_1_37()).choose(gpu), DeviceChoice)
    plans = ClaimsUnderTest(features=NEWER).parsed_claims
    able = DeviceChoices(plans, AllocatedState(), NEWER, node_skips_operations=True)
    assert isinstance(able.choose(0, next(iter(plans[0].requests)), gpu, required=False), DeviceChoice)


def test_with_derived_attributes_every_choice_is_tried() -> None:
    derived = [{"name": "a.example.com/x", "expression": "device.driver"}]
    claims = ClaimsUnderTest(request("r", derivedAttributes=derived), request("r"), features=NEWER)
    assert [claims.choices.depends_on_undone(index) for index in (0, 1)] == [True, False]


def test_since_1_37_mode_all_includes_full_devices() -> None:
    used = AllocatedState.of([held("a", shareID="x", consumedCapacity={"memory": "3"})])
    for features, counted in ((SchedulerFeatures(), False), (of_1_37(), True)):
        (gpu,) = candidates(a_slice(shared("a", capacity={"memory": "4"})), features=features)
        claims = ClaimsUnderTest(
            request("r", capacity=memory("2")), request("r", capacity=memory("5")), held=used, features=features
        )
        wanted, too_much = (next(iter(plan.requests)) for plan in claims.parsed_claims)
        assert claims.choices.counts_for_all_mode(wanted, gpu.device) is counted
        assert not claims.choices.counts_for_all_mode(too_much, gpu.device)
