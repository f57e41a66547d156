from __future__ import annotations

from dra_sdk.tools.scheduling.cluster import schedule, would_help
from tests.tools.scheduling.cluster.objects import claim, cluster, gpus, node, pod, request, template


def pods(count):
    return [pod(f"p{number}", templates=["one"]) for number in range(count)]


def keys(*names):
    return tuple(("default", name) for name in names)


def test_nothing_helps_those_who_have_all():
    assert would_help(schedule(cluster(node("a"), gpus("a", "gpu-0"), claim("c")))) == []


def test_as_many_nodes_as_it_takes():
    outcome = schedule(cluster(node("a"), gpus("a", "gpu-0", "gpu-1"), template("one"), *pods(7)))
    (found,) = would_help(outcome)
    assert (found.like, found.nodes, found.left) == ("a", 3, ())
    assert found.placed == keys("p2", "p3", "p4", "p5", "p6")


def test_one_node_of_each_make_is_tried_the_best_first():
    small = [node(name) for name in ("a", "b")] + [gpus("a", "gpu-0"), gpus("b", "gpu-0")]
    large = [node("c"), gpus("c", "gpu-0", "gpu-1")]
    outcome = schedule(cluster(*small, *large, template("one"), *pods(6)))
    assert [(each.like, each.nodes) for each in would_help(outcome)] == [("c", 1), ("a", 2)]


def test_help_for_some():
    big = claim("big", request(count=9))
    outcome = schedule(cluster(node("a"), gpus("a", "gpu-0"), template("one"), *pods(2), big))
    (found,) = would_help(outcome)
    assert (found.nodes, found.placed, found.left) == (1, keys("p1"), keys("big"))


def test_no_help():
    assert would_help(schedule(cluster(node("a"), gpus("a", "gpu-0"), claim("c", request(count=9))))) == []
    assert would_help(schedule(cluster(claim("c")))) == []


def test_nodes_are_copied_from_the_cluster_as_it_was():
    healthy = cluster(node("a"), gpus("a", "gpu-0"), claim("c"))
    broken = gpus("a", "gpu-0")
    broken["spec"]["devices"][0]["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    outcome = schedule(healthy.having([broken]))
    assert would_help(outcome) == []
    assert [each.like for each in would_help(outcome, healthy)] == ["a"]
