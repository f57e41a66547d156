"""What kube-scheduler's plugin DefaultPreemption does; the real one is asked in tests/cluster/test_preemption.py."""

from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.cluster.simulation_notes import NO_PREEMPTION
from tests.tools.scheduling.cluster.objects import (
    allocated,
    claim,
    cluster,
    devices_of,
    gpus,
    node,
    nodes_of,
    obj,
    pod,
    template,
)

CPUS = {"cpu": "4", "pods": "10"}


def needs(cpu, **more):
    containers = [{"name": "main", "resources": {"requests": {"cpu": str(cpu)}}}]
    return {"containers": containers, **more}


def running(name, cpu, priority, on="a", *, labels=None, start=None, **more):
    made = pod(name, **needs(cpu, priority=priority, nodeName=on), **more)
    made["metadata"]["labels"] = labels or {}
    return made | ({"status": {"startTime": f"2026-01-01T00:00:{start:02}Z"}} if start is not None else {})


def budget(name, allowed, **labels):
    spec = {"selector": {"matchLabels": labels}}
    return obj("PodDisruptionBudget", name, spec, "default") | {"status": {"disruptionsAllowed": allowed}}


def preempted(*objects):
    """What happens to a pod `p` of priority 10 with 2 CPUs: its node and the pods that it evicts."""
    outcome = schedule(cluster(*objects, pod("p", **needs(2, priority=10))))
    own = [
        preemption for preemption in outcome.preemptions if preemption.pod == ("default", "p")
    ]  # victims may preempt others in turn
    return [(preemption.node, [name for _, name in preemption.victims]) for preemption in own], nodes_of(outcome)["p"]


def test_a_pod_takes_the_place_of_a_less_important_one():
    outcome = schedule(
        cluster(node("a", allocatable=CPUS), running("low", 3, 1), pod("p", **needs(2, priority=10)), pod("q"))
    )
    assert nodes_of(outcome) == {"low": None, "p": "a", "q": "a"}
    (found,) = outcome.preemptions
    assert (found.pod, found.node, found.victims) == (("default", "p"), "a", (("default", "low"),))
    assert (found.priority, found.missing, found.violations) == (10, ("cpu",), 0)
    assert str(outcome.evicted["default", "low"]) == "preempted by pod p of priority 10 for cpu"
    assert outcome.pods_by_key["default", "low"].reason == "0 of 1 nodes: not enough cpu on 1 node"


def test_a_victim_moves_to_another_node():
    big, small = node("a", allocatable=CPUS), node("b", allocatable={"cpu": "3", "pods": "10"})
    picky = pod("p", **needs(4, priority=10))
    assert nodes_of(schedule(cluster(big, small, running("low", 3, 1), picky))) == {"low": "b", "p": "a"}


@pytest.mark.parametrize(
    ("change", "policy"),
    [({"priority": 1}, {}), ({"priority": 0}, {}), ({"priority": 10}, {"preemptionPolicy": "Never"})],
)
def test_pods_that_evict_no_others(change, policy):
    outcome = schedule(
        cluster(node("a", allocatable=CPUS), running("low", 3, 1), pod("p", **needs(2, **change, **policy)))
    )
    assert (nodes_of(outcome), outcome.preemptions) == ({"low": "a", "p": None}, ())


def test_the_most_important_pods_stay():
    """Two of the three have to go: the least important, and of equal ones the one that started last."""
    lows = [running("x", 1, 3), running("y", 2, 2, start=1), running("z", 1, 2, start=5)]
    assert preempted(node("a", allocatable=CPUS), *lows) == ([("a", ["y"])], "a")
    lows = [running("x", 2, 3), running("y", 1, 2, start=1), running("z", 1, 2, start=5)]
    assert preempted(node("a", allocatable=CPUS), *lows) == ([("a", ["y", "z"])], "a")
    lows = [running("y", 2, 2, start=1), running("z", 2, 2, start=5)]
    assert preempted(node("a", allocatable=CPUS), *lows) == ([("a", ["z"])], "a")


NODES = (node("a", allocatable=CPUS), node("b", allocatable=CPUS))


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([running("x", 3, 5), running("y", 3, 4, "b")], id="lowest highest priority"),
        pytest.param(
            [running("x", 2, 4), running("x2", 2, 3), running("y", 2, 4, "b"), running("y2", 2, 2, "b")],
            id="lower highest priority of the victims, not of the pods",
        ),
        pytest.param(
            [
                running(n, c, q, o)
                for n, c, q, o in (
                    ("x", 1, 4, "a"),
                    ("x2", 1, 3, "a"),
                    ("x3", 2, 9, "a"),
                    ("y", 2, 4, "b"),
                    ("y2", 2, 9, "b"),
                )
            ],
            id="smallest sum",
        ),
        pytest.param([running("x", 3, 4, start=1), running("y", 3, 4, "b", start=2)], id="latest start"),
        pytest.param([running("x", 3, 4, start=1), running("y", 3, 4, "b")], id="not started"),
        pytest.param(
            [budget("keep", 0, app="x"), running("x", 3, 1, labels={"app": "x"}), running("y", 3, 4, "b")],
            id="fewest violations",
        ),
    ],
)
def test_the_node_with_the_least_loss_is_chosen(others):
    (chosen,), placed = preempted(*NODES, *others)
    names = {other["metadata"]["name"]: other["spec"]["nodeName"] for other in others if other["kind"] == "Pod"}
    assert (chosen[0], placed) == ("b", "b"), names


def test_equal_nodes_are_taken_in_order():
    assert preempted(*NODES, running("x", 3, 4), running("y", 3, 4, "b")) == ([("a", ["x"])], "a")


def test_budgets_spare_pods_where_others_are_enough():
    lows = [running("x", 2, 1, labels={"app": "x"}), running("y", 2, 3)]
    assert preempted(NODES[0], *lows)[0] == [("a", ["x"])]
    assert preempted(NODES[0], budget("keep", 0, app="x"), *lows)[0] == [("a", ["y"])]
    assert preempted(NODES[0], budget("keep", 1, app="x"), *lows)[0] == [("a", ["x"])]


def test_no_pod_is_evicted_for_devices():
    """The devices of a victim are not free in kube-scheduler's dry run."""
    held = allocated(claim("c"), "gpu-0", on="a", pods=["low"])
    devices = (node("a", allocatable=CPUS), gpus("a", "gpu-0"), held, template("one"))
    low = running("low", 3, 1, claims=["c"])
    for cpu in (0, 2):
        outcome = schedule(cluster(*devices, low, pod("p", templates=["one"], **needs(cpu, priority=10))))
        assert nodes_of(outcome) == {"low": "a", "p": None}
        assert outcome.preemptions == ()
    assert not any(NO_PREEMPTION in note for note in outcome.notes), "it lacks CPUs first"


def test_evictions_for_cpus_where_devices_are_free():
    held = allocated(claim("c"), "gpu-0", on="a", pods=["low"])
    devices = (node("a", allocatable=CPUS), gpus("a", "gpu-0", "gpu-1"), held, template("one"))
    low = running("low", 3, 1, claims=["c"])
    outcome = schedule(cluster(*devices, low, pod("p", templates=["one"], **needs(2, priority=10))))
    assert nodes_of(outcome) == {"low": None, "p": "a"}
    assert [name for name, found in devices_of(outcome).items() if found] == [
        outcome.pods_by_key["default", "p"].claims[0][1]
    ]
    assert devices_of(outcome)["c"] == [], "nobody uses it any more"


def test_what_a_victim_held_is_free_for_a_more_important_pod():
    """No pod is evicted for `first`, but it gets the device that is free after a pod was evicted for `p`."""
    held = allocated(claim("c"), "gpu-0", on="a", pods=["low"])
    first = pod("first", templates=["one"], priority=20)
    outcome = schedule(
        cluster(
            NODES[0],
            gpus("a", "gpu-0"),
            held,
            template("one"),
            running("low", 3, 1, claims=["c"]),
            first,
            pod("p", **needs(2, priority=10)),
        )
    )
    assert nodes_of(outcome) == {"low": None, "first": "a", "p": "a"}


def test_others_yield_to_a_nominated_pod():
    waiting = pod("p", **needs(2, priority=10)) | {"status": {"nominatedNodeName": "a"}}
    low = running("low", 3, 1)
    outcome = schedule(cluster(node("a", allocatable={"cpu": "6", "pods": "9"}), low, pod("q", **needs(3)), waiting))
    assert nodes_of(outcome) == {"low": "a", "q": None, "p": "a"}


def test_priority_classes_decide():
    classes = [
        obj("PriorityClass", "high") | {"value": 10},
        obj("PriorityClass", "base") | {"value": 5, "globalDefault": True},
    ]
    low, base = running("low", 3, 1), running("base", 3, None)
    wanted = pod("p", **needs(2, priorityClassName="high"))
    assert len(schedule(cluster(NODES[0], *classes, low, wanted)).preemptions) == 1
    assert schedule(cluster(NODES[0], *classes, base, wanted)).preemptions[0].victims == (("default", "base"),)
    shy = [classes[0] | {"preemptionPolicy": "Never"}]
    assert schedule(cluster(NODES[0], *shy, low, wanted)).preemptions == ()
    assert schedule(cluster(NODES[0], *classes, running("other", 3, 5), pod("p", **needs(2)))).preemptions == ()
