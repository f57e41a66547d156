from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model.device import (
    Capacity,
    CounterConsumption,
    CounterSet,
    Device,
    DeviceTaint,
    NodeAllocatable,
    NodeSelection,
    RequestPolicy,
    ResourcePool,
)
from dra_sdk.node.slices.plan import PoolPlan, api_problems, plan

ALL = NodeSelection(all_nodes=True)


def planned(pool: ResourcePool, node: str | None = "n") -> PoolPlan:
    found = plan([pool], driver="d", node_name=node)[pool.name]
    assert isinstance(found, PoolPlan), found
    return found


def problems(pool: ResourcePool, node: str | None = "n") -> list[str]:
    found = plan([pool], driver="d", node_name=node)[pool.name]
    assert isinstance(found, InvalidObjectError)
    assert found.subject == f"pool {pool.name}"
    return found.problems


def names(slices: tuple[dict[str, Any], ...]) -> list[list[str]]:
    return [[device["name"] for device in each.get("devices", [])] for each in slices]


def devices(count: int, **more: Any) -> list[Device]:
    return [Device(f"d{i}", **more) for i in range(count)]


@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (1, [1]), (128, [128]), (129, [128, 1]), (300, [128, 128, 44])])
def test_plain_devices_come_in_slices_of_128(count: int, sizes: list[int]):
    found = planned(ResourcePool("p", devices(count)))
    assert [len(each) for each in names(found.slices)] == sizes
    assert [name for each in names(found.slices) for name in each] == [f"d{i}" for i in range(count)]


@pytest.mark.parametrize(
    "special",
    [
        Device("x", attributes={"list": [1, 2]}),
        Device("x", taints=[DeviceTaint(key="k", effect="None", time_added=datetime(2026, 1, 1, tzinfo=UTC))]),
        Device("x", consumes=[CounterConsumption("s", {"c": 1})]),
    ],
)
def test_any_special_device_makes_slices_of_64(special: Device):
    pool = ResourcePool("p", [*devices(127), special], [CounterSet("s", {"c": 1})] if special.consumes else [])
    sizes = [len(each) for each in names(planned(pool).slices)]
    assert sizes == ([0, 64, 64] if special.consumes else [64, 64])


def test_counter_sets_have_slices_of_their_own():
    sets = [CounterSet(f"s{i}", {"c": "1024Mi"}) for i in range(9)]
    found = planned(ResourcePool("p", devices(1), sets))
    assert [len(each.get("sharedCounters", [])) for each in found.slices] == [8, 1, 0]
    assert names(found.slices) == [[], [], ["d0"]]
    assert found.slices[1]["sharedCounters"] == [{"name": "s8", "counters": {"c": {"value": "1Gi"}}}]
    assert all(each["nodeName"] == "n" for each in found.slices)
    assert len(planned(ResourcePool("p", [], sets[:1])).slices) == 1


def test_an_empty_pool_is_one_empty_slice():
    assert planned(ResourcePool("p")).slices == ({"nodeName": "n"},)


def test_equal_pools_give_equal_plans():
    def make() -> ResourcePool:
        return ResourcePool("p", devices(200, attributes={"b": 1, "a": "x"}), [CounterSet("s", {"c": 1})])

    assert planned(make()) == planned(make())


def test_which_nodes():
    selector = {"nodeSelectorTerms": [{}]}
    assert planned(ResourcePool("p")).node_bound
    assert planned(ResourcePool("p", node=NodeSelection(node_name="n"))).slices == ({"nodeName": "n"},)
    shared = planned(ResourcePool("p", node=ALL))
    assert (shared.slices, shared.node_bound) == (({"allNodes": True},), False)
    assert planned(ResourcePool("p", node=NodeSelection(node_selector=selector)), None).slices == (
        {"nodeSelector": selector},
    )


def test_each_device_with_its_own_nodes():
    pool = ResourcePool(
        "p", [Device("a", node=ALL), Device("b", node=NodeSelection(node_name="m"))], [CounterSet("s", {"c": 1})]
    )
    found = planned(pool)
    assert found.slices == (
        {"perDeviceNodeSelection": True, "sharedCounters": [{"name": "s", "counters": {"c": {"value": "1"}}}]},
        {"perDeviceNodeSelection": True, "devices": [{"name": "a", "allNodes": True}, {"name": "b", "nodeName": "m"}]},
    )
    assert not found.node_bound


@pytest.mark.parametrize(
    ("pool", "node", "problem"),
    [
        (
            ResourcePool("p", [Device("a", node=ALL), Device("b")]),
            "n",
            "node: either every device has its own or none has",
        ),
        (
            ResourcePool("p", [Device("a", node=ALL)], node=ALL),
            "n",
            "node: either the pool has one or its devices, not both",
        ),
        (ResourcePool("p"), None, "node: must say which nodes reach it, because this driver runs for no single node"),
        (
            ResourcePool("p", node=NodeSelection(node_name="m")),
            "n",
            "node: the driver of node n cannot publish for node m; use node_selector",
        ),
        (
            ResourcePool("p", node=NodeSelection(node_name="m")),
            None,
            "node: a driver of the whole cluster cannot publish for node m; use node_selector",
        ),
        (
            ResourcePool("p", node=NodeSelection()),
            "n",
            f"node: exactly one of node_name, node_selector and all_nodes must be set, got {NodeSelection()}",
        ),
        (ResourcePool("p", [Device("a"), Device("a")]), "n", "device a: there are 2 of this name"),
        (
            ResourcePool("p", [], [CounterSet("s", {"c": 1}), CounterSet("s", {"c": 1})]),
            "n",
            "counter set s: there are 2 of this name",
        ),
        (
            ResourcePool("p", [Device("a", consumes=[CounterConsumption("s", {"c": 1})])]),
            "n",
            "device a: consumes from counter set s, which the pool does not have",
        ),
        (
            ResourcePool("p", [Device("a", consumes=[CounterConsumption("s", {"d": 1})])], [CounterSet("s", {"c": 1})]),
            "n",
            "device a: consumes counter d, which counter set s does not have",
        ),
        (
            ResourcePool("p", [Device("a", attributes={"x": 1.5})]),  # type: ignore[dict-item]
            "n",
            "device a: attribute x: 1.5 is not a bool, an int of 64 bits, a str or a Version",
        ),
        (ResourcePool("p", [], [CounterSet("s", {"c": "x"})]), "n", None),
    ],
)
def test_problems(pool: ResourcePool, node: str | None, problem: str | None):
    (found,) = problems(pool, node)
    assert found == problem or (problem is None and found.startswith("counter set s: counter c: 'x' is not a quantity"))


def test_all_problems_at_once_and_other_pools_in_peace():
    bad = ResourcePool("bad", [Device("a", attributes={"x": None}), Device("b"), Device("b")])  # type: ignore[dict-item]
    found = plan([bad, ResourcePool("good")], driver="d", node_name="n")
    assert isinstance(found["good"], PoolPlan)
    assert isinstance(found["bad"], InvalidObjectError)
    assert len(found["bad"].problems) == 2


@pytest.mark.parametrize(
    ("pool", "where"),
    [
        (ResourcePool("bad", [Device("a", {}, {"x": Capacity(1, policy=3)})]), "a: "),  # type: ignore[arg-type]
        (ResourcePool("bad", [Device("a", node="n")]), "a: "),  # type: ignore[arg-type]
        (ResourcePool("bad", ["a"]), ""),  # type: ignore[list-item]
        (ResourcePool("bad", node="n"), ""),  # type: ignore[arg-type]
        (ResourcePool("bad", None), ""),  # type: ignore[arg-type]
    ],
)
def test_values_of_other_types_than_the_models_leave_other_pools_in_peace(pool: ResourcePool, where: str):
    found = plan([pool, ResourcePool("good")], driver="d", node_name="n")
    assert isinstance(found["good"], PoolPlan)
    assert isinstance(found["bad"], InvalidObjectError)
    assert found["bad"].problems[0].startswith(f"{where}a value is of another type than the model's: ")


def test_the_same_mistake_in_thousands_of_devices_is_told_in_a_few_words():
    pool = ResourcePool("p", [Device(f"d{i}", attributes={"a-b": 1}) for i in range(1000)])
    found = problems(pool)
    assert len(found) == 21
    assert found[-1] == "and 980 more problems"


def test_two_pools_of_one_name():
    found = plan([ResourcePool("p"), ResourcePool("q"), ResourcePool("p")], driver="d", node_name="n")
    assert str(found["p"]) == "pool p: there are two pools of this name"
    assert isinstance(found["q"], PoolPlan)


DRIVER = "gpu.example.com"


def test_what_is_in_order():
    assert api_problems([{"nodeName": "n", "devices": [{"name": "gpu-0"}]}], DRIVER, "n") == []


@pytest.mark.parametrize(
    ("driver", "pool", "spec", "said"),
    [
        ("-", "p", {"nodeName": "n"}, "driver: "),
        (DRIVER, "a//b", {"nodeName": "n"}, "pool.name: "),
        (DRIVER, "p", {"nodeName": "N"}, "nodeName: "),
        (DRIVER, "p", {"nodeName": "n", "devices": [{"name": "GPU 0"}]}, "device GPU 0: name: must be a DNS label"),
        (
            DRIVER,
            "p",
            {"nodeName": "n", "devices": [{"name": "gpu-0", "attributes": {"model": {"string": "x" * 65}}}]},
            "device gpu-0: attribute model: string: must be at most 64 bytes",
        ),
    ],
)
def test_each_part_is_checked_and_named(driver: str, pool: str, spec: dict[str, Any], said: str):
    (problem,) = api_problems([spec], driver, pool)
    assert problem.startswith(said)


def test_what_one_release_takes_is_in_order():
    """The field exists in 1.36 only."""
    pool = ResourcePool("p", [Device("d", node_allocatable={"cpu": NodeAllocatable()})])
    assert isinstance(plan([pool], driver=DRIVER, node_name="n")["p"], PoolPlan)


def test_what_one_server_takes_by_a_gate_is_in_order():
    """By default all releases round the two amounts to one."""
    capacity = {"light": Capacity(100, RequestPolicy(default=1, valid_values=["500m", 1]))}
    pool = ResourcePool("p", [Device("d", capacity=capacity, allow_multiple_allocations=True)])
    assert isinstance(plan([pool], driver=DRIVER, node_name="n")["p"], PoolPlan)


def test_plan_tells_each_problem():
    taints = [DeviceTaint(key="", effect="NoSchedule"), DeviceTaint(key="ok", effect="Maybe")]  # type: ignore[arg-type]
    pool = ResourcePool("p", [Device("gpu-0", attributes={"not-an-identifier": 1}, taints=taints)])
    found = plan([pool], driver=DRIVER, node_name="n")["p"]
    assert isinstance(found, InvalidObjectError)
    assert len(found.problems) == 3
    assert all(problem.startswith("device gpu-0: ") for problem in found.problems)
