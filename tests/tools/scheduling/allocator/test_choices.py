from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import Allocated, AllocationError, Features
from dra_sdk.tools.scheduling.allocator.choices import Choice, Choices, Refusal
from dra_sdk.tools.scheduling.allocator.requests import ClaimPlan, parse
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


class Desk:
    """Choices for one claim, or several, of one request each."""

    def __init__(
        self, *raw: dict[str, Any], held: Allocated | None = None, features: Features | None = None, **devices: Any
    ) -> None:
        features = features or Features()
        self.plans: list[ClaimPlan] = [
            parse(claim(each, **devices), {"gpu": device_class()}, features) for each in raw or [request("r")]
        ]
        self.choices = Choices(self.plans, held or Allocated(), features)

    def choose(self, candidate: Any, index: int = 0, *, must: bool = False) -> Choice | Refusal:
        return self.choices.choose(index, next(iter(self.plans[index].requests)), candidate, must=must)


def test_a_device_is_chosen_once() -> None:
    (gpu,) = candidates(a_slice(device("a")))
    desk = Desk(request("r"), request("r"))
    choice = desk.choose(gpu)
    assert isinstance(choice, Choice)
    assert desk.choose(gpu, 1) is Refusal.IN_USE
    desk.choices.undo(choice)
    assert isinstance(desk.choose(gpu, 1), Choice)
    assert [len(each) for each in desk.choices.chosen] == [0, 1]


def test_allocated_devices_are_in_use_except_for_admin_access() -> None:
    (gpu,) = candidates(a_slice(device("a")))
    desk = Desk(request("r"), request("r", adminAccess=True), held=Allocated.of([held("a")]))
    assert desk.choose(gpu) is Refusal.IN_USE
    choice = desk.choose(gpu, 1)
    assert isinstance(choice, Choice)
    assert desk.choose(gpu, 1) is Refusal.IN_USE


def test_admin_access_keeps_other_claims_of_the_pod_away() -> None:
    (gpu,) = candidates(a_slice(device("a")))
    desk = Desk(request("r", adminAccess=True), request("r"), request("r", adminAccess=True))
    assert isinstance(desk.choose(gpu), Choice)
    assert desk.choose(gpu, 1) is Refusal.IN_USE
    second = desk.choose(gpu, 2)
    assert isinstance(second, Choice)
    desk.choices.undo(second)
    assert desk.choose(gpu, 1) is Refusal.IN_USE


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
    assert (Desk(request("r", tolerations=tolerations)).choose(gpu) is Refusal.TAINTED) is refused
    off = Desk(request("r"), features=Features(device_taints=False))
    assert isinstance(off.choose(gpu), Choice)


def partitions() -> list[Any]:
    devices = [device(name) | consumes(memory="3") for name in ("a", "b")]
    return candidates(counter_sets(set={"memory": "4"}), a_slice(*devices, count=2))


def test_counters_are_given_back_with_the_device() -> None:
    a, b = partitions()
    desk = Desk(request("r"), request("r"))
    choice = desk.choose(a)
    assert isinstance(choice, Choice)
    assert desk.choose(b, 1) is Refusal.COUNTERS
    desk.choices.undo(choice)
    assert isinstance(desk.choose(b, 1), Choice)


def test_without_the_feature_devices_with_counters_are_refused() -> None:
    (gpu,) = candidates(counter_sets(set={"memory": "4"}), a_slice(device("a") | consumes(memory="1"), count=2))
    desk = Desk(features=Features(partitionable_devices=False))
    assert desk.choose(gpu) is Refusal.COUNTERS_OFF


def test_a_constraint_that_refuses_leaves_no_trace_in_others() -> None:
    constraints = [{"matchAttribute": f"{DRIVER}/numa"}, {"matchAttribute": f"{DRIVER}/model"}]
    gpus = candidates(a_slice(device("a", numa=0, model="x"), device("b", numa=0, model="y"), device("c", numa=1)))
    desk = Desk(request("r", count=3), constraints=constraints)
    first = desk.choose(gpus[0])
    assert isinstance(first, Choice)
    assert desk.choose(gpus[1]) is Refusal.CONSTRAINT
    desk.choices.undo(first)
    assert desk.choose(gpus[2]) is Refusal.CONSTRAINT
    assert isinstance(desk.choose(gpus[1]), Choice)


def test_a_constraint_that_refuses_the_only_device_is_an_error() -> None:
    (gpu,) = candidates(a_slice(device("a") | consumes(memory="1"), count=2), counter_sets(set={"memory": "1"}))
    desk = Desk(request("r", allocationMode="All"), constraints=[{"matchAttribute": "a/b"}])
    problem = "claim ns/c, request r: cannot add device gpu.example.com/n1/a because a claim constraint"
    with pytest.raises(AllocationError, match=problem):
        desk.choose(gpu, must=True)
    assert not any(desk.choices.counters.consumed(gpu.pool).values())


def memory(value: str) -> dict[str, Any]:
    return {"requests": {"memory": value}}


def test_shares_fill_a_device_up() -> None:
    (gpu,) = candidates(a_slice(shared("a", capacity={"memory": "4"})))
    desk = Desk(*(request("r", capacity=memory(each)) for each in ("3", "2", "1")))
    first = desk.choose(gpu, must=True)
    assert isinstance(first, Choice)
    assert [(each.name, each.amount.text) for each in first.consumed] == [("memory", "3")]
    assert desk.choose(gpu, 1, must=True) is Refusal.CAPACITY
    assert isinstance(desk.choose(gpu, 2, must=True), Choice)


def test_capacity_is_given_back_and_that_of_other_claims_counts() -> None:
    (gpu,) = candidates(a_slice(shared("a", capacity={"memory": "4"})))
    used = Allocated.of([held("a", shareID="x", consumedCapacity={"memory": "2"})])
    desk = Desk(request("r", capacity=memory("2")), request("r", capacity=memory("1")), held=used)
    wanted = next(iter(desk.plans[1].requests))
    choice = desk.choose(gpu)
    assert isinstance(choice, Choice)
    assert not desk.choices.has_capacity(wanted, gpu.device)
    desk.choices.undo(choice)
    assert desk.choices.has_capacity(wanted, gpu.device)


def test_shares_of_a_partition_consume_its_counters_once() -> None:
    both = [shared(name, capacity={"memory": "4"}) | consumes(memory="3") for name in ("a", "b")]
    a, b = candidates(counter_sets(set={"memory": "4"}), a_slice(*both, count=2))
    desk = Desk(*(request("r", capacity=memory("1")) for _ in range(3)))
    first, second = desk.choose(a), desk.choose(a, 1)
    assert isinstance(first, Choice)
    assert isinstance(second, Choice)
    assert desk.choose(b, 2) is Refusal.COUNTERS
    desk.choices.undo(second)
    assert desk.choose(b, 2) is Refusal.COUNTERS
    desk.choices.undo(first)
    assert isinstance(desk.choose(b, 2), Choice)


@pytest.mark.parametrize(("features", "refused"), [(Features(), True), (of_1_37(), False)])
def test_since_1_37_a_share_without_capacity_keeps_the_counters(features: Features, refused: bool) -> None:
    both = a_slice(shared("a") | consumes(memory="3"), count=2)
    (gpu,) = candidates(counter_sets(set={"memory": "4"}), both, features=features)
    desk = Desk(request("r"), held=Allocated.of([held("a", shareID="x")]), features=features)
    assert (desk.choose(gpu) is Refusal.COUNTERS) is refused


def test_devices_whose_groups_do_not_go_together() -> None:
    devices = [device(name) | consumes(memory="1") for name in ("a", "b")]
    for each, groups in zip(devices, ("x", "y"), strict=True):
        each["consumesCounters"][0]["compatibilityGroups"] = [groups]
    slices = counter_sets(set={"memory": "9"}), a_slice(*devices, count=2)
    a, b = candidates(*slices, features=NEWER)
    desk = Desk(request("r"), request("r"), features=NEWER)
    choice = desk.choose(a)
    assert isinstance(choice, Choice)
    assert desk.choose(b, 1) is Refusal.GROUPS
    desk.choices.undo(choice)
    assert isinstance(desk.choose(b, 1), Choice)


def test_a_device_that_skips_operations_needs_a_node_that_can() -> None:
    (gpu,) = candidates(a_slice(device("a"), skipNodeOperations=["*"]))
    assert Desk(features=NEWER).choose(gpu) is Refusal.NODE
    assert isinstance(Desk(features=of_1_37()).choose(gpu), Choice)
    plans = Desk(features=NEWER).plans
    able = Choices(plans, Allocated(), NEWER, skips=True)
    assert isinstance(able.choose(0, next(iter(plans[0].requests)), gpu, must=False), Choice)


def test_where_attributes_are_derived_every_choice_is_tried() -> None:
    derived = [{"name": "a.example.com/x", "expression": "device.driver"}]
    desk = Desk(request("r", derivedAttributes=derived), request("r"), features=NEWER)
    assert [desk.choices.keeps_traces(each) for each in (0, 1)] == [True, False]


def test_since_1_37_a_request_for_all_is_for_full_devices_too() -> None:
    used = Allocated.of([held("a", shareID="x", consumedCapacity={"memory": "3"})])
    for features, counted in ((Features(), False), (of_1_37(), True)):
        (gpu,) = candidates(a_slice(shared("a", capacity={"memory": "4"})), features=features)
        desk = Desk(
            request("r", capacity=memory("2")), request("r", capacity=memory("5")), held=used, features=features
        )
        wanted, too_much = (next(iter(plan.requests)) for plan in desk.plans)
        assert desk.choices.counts(wanted, gpu.device) is counted
        assert not desk.choices.counts(too_much, gpu.device)
