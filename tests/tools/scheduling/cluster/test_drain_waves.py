from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster import WhatIfError, schedule
from dra_sdk.tools.scheduling.cluster.drain_waves import drain_in_waves, uncordoned, waves_of
from dra_sdk.tools.scheduling.cluster.what_if import replaced
from tests.tools.scheduling.cluster.objects import cluster, gpus, node, nodes_of, obj, pod, template


def same(snapshot, _nodes):
    return snapshot


def three_nodes(*pods, devices=1):
    nodes = [node(name) for name in "abc"]
    slices = [gpus(name, *(f"gpu-{index}" for index in range(devices))) for name in "abc"]
    return schedule(cluster(*nodes, *slices, template("one"), *pods))


def gpu_pods(*names):
    return [pod(name, templates=["one"]) for name in names]


def test_nodes_in_groups():
    assert waves_of("abcde", 2) == [("a", "b"), ("c", "d"), ("e",)]
    assert waves_of("ab", 5) == [("a", "b")]
    assert waves_of("", 1) == []


def test_pods_move_from_wave_to_wave():
    start = three_nodes(*gpu_pods("p", "q"))
    assert nodes_of(start) == {"p": "a", "q": "b"}
    waves = list(drain_in_waves(start, waves_of("abc", 1), same))
    assert [nodes_of(wave.after) for wave in waves] == [
        {"p": "c", "q": "b"},
        {"p": "c", "q": "a"},
        {"p": "b", "q": "a"},
    ]
    assert [[change.subject[1] for change in wave.changes] for wave in waves] == [["p"], ["q"], ["p"]]
    assert all(wave.fits for wave in waves)
    assert not any((node.get("spec") or {}).get("unschedulable") for node in uncordoned(waves[-1]).snapshot.nodes)


def test_a_wave_that_is_too_large():
    waves = list(drain_in_waves(three_nodes(*gpu_pods("p", "q")), waves_of("abc", 2), same))
    assert [wave.fits for wave in waves] == [False, True]
    assert waves[0].unplaced == (("default", "q"),)
    assert nodes_of(waves[1].before) == {"p": "c", "q": "a"}, "the waiting pod has a node once they are uncordoned"


def test_a_node_that_was_cordoned_stays_so():
    start = three_nodes()
    cordoned = [node | {"spec": {"unschedulable": True}} for node in start.snapshot.nodes[:1]]
    (wave,) = drain_in_waves(schedule(start.snapshot.with_objects(cordoned)), [("a", "b")], same)
    unschedulable = {
        node["metadata"]["name"]: node["spec"].get("unschedulable") for node in uncordoned(wave).snapshot.nodes
    }
    assert unschedulable == {"a": True, "b": None, "c": None}


def test_slices_after_the_upgrade_are_seen_by_the_next_wave():
    """Each node loses a GPU by the upgrade."""

    def upgrade(snapshot, nodes):
        return replaced(snapshot, cluster(*(gpus(name, "gpu-0", generation=2) for name in nodes)))

    start = three_nodes(*gpu_pods("p", "q", "r", "s"), devices=2)
    waves = list(drain_in_waves(start, waves_of("abc", 1), upgrade))
    assert [wave.fits for wave in waves] == [True, False, False]
    assert len(uncordoned(waves[-1]).unplaced) == 1


def test_budgets_that_a_drain_waits_for():
    pods = gpu_pods("p", "q")
    for made_pod in pods:
        made_pod["metadata"]["labels"] = {"app": "x"}
    budget = obj("PodDisruptionBudget", "b", {"selector": {"matchLabels": {"app": "x"}}, "minAvailable": 1}, "default")
    start = three_nodes(*pods, budget)
    assert [wave.blocked for wave in drain_in_waves(start, waves_of("abc", 1), same)] == [(), (), ()]
    assert next(drain_in_waves(start, waves_of("abc", 2), same)).blocked == (("default", "q"),)


def test_a_node_that_does_not_exist():
    with pytest.raises(WhatIfError, match="there is no node d"):
        list(drain_in_waves(three_nodes(), [("d",)], same))
