from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster.priority_classes import missing_class, with_priorities
from tests.tools.scheduling.cluster.objects import cluster, obj, pod


def priority_class(name, value, **more):
    return obj("PriorityClass", name) | {"value": value, **more}


def spec_of(snapshot):
    return {key: with_priorities(snapshot).pods[0]["spec"].get(key) for key in ("priority", "preemptionPolicy")}


@pytest.mark.parametrize(
    ("classes", "spec", "priority", "policy"),
    [
        ([], {}, None, None),
        ([], {"priorityClassName": "system-node-critical"}, 2_000_001_000, "PreemptLowerPriority"),
        ([priority_class("a", 7)], {"priorityClassName": "a"}, 7, "PreemptLowerPriority"),
        ([priority_class("a", -7, preemptionPolicy="Never")], {"priorityClassName": "a"}, -7, "Never"),
        ([priority_class("a", 7)], {"priorityClassName": "a", "priority": 3}, 3, None),
        ([priority_class("a", 7)], {"priorityClassName": "b"}, None, None),
        ([priority_class("a", 7)], {}, None, None),
        ([priority_class("a", 7, globalDefault=True)], {}, 7, "PreemptLowerPriority"),
        (
            [priority_class("a", 7, globalDefault=True), priority_class("b", 3, globalDefault=True)],
            {},
            3,
            "PreemptLowerPriority",
        ),
    ],
)
def test_the_class_gives_the_priority(classes, spec, priority, policy):
    pod_spec = spec_of(cluster(*classes, pod("p", **spec)))
    assert (pod_spec["priority"], pod_spec["preemptionPolicy"]) == (priority, policy)


def test_a_missing_class():
    snapshot = cluster(priority_class("a", 7))
    assert missing_class(pod("p", priorityClassName="b"), snapshot) == "b"
    for known in ({"priorityClassName": "a"}, {}, {"priorityClassName": "b", "priority": 1}):
        assert missing_class(pod("p", **known), snapshot) == ""
    assert missing_class(pod("p", priorityClassName="system-cluster-critical"), snapshot) == ""
