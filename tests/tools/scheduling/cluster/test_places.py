from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.allocator import AllocationError
from dra_sdk.tools.scheduling.cluster.core import Node
from dra_sdk.tools.scheduling.cluster.places import obstacle
from tests.tools.scheduling.cluster.objects import node, parsed, pod

TAINTED = node("a", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
NOT_SELECTED = "not selected by nodeSelector or affinity"


def required(*requirements, fields=()):
    term = {"matchExpressions": list(requirements), "matchFields": list(fields)}
    selector = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def found(where, **spec):
    return obstacle(parsed(pod("p", **spec)), Node.model_validate(where), where)


@pytest.mark.parametrize(
    ("where", "spec", "expected"),
    [
        (node("a"), {}, ""),
        (node("a", unschedulable=True), {}, "cordoned"),
        (node("a", unschedulable=True), {"tolerations": [{"operator": "Exists"}]}, ""),
        (TAINTED, {}, "taint gpu=yes:NoSchedule not tolerated"),
        (TAINTED, {"tolerations": [{"key": "gpu", "operator": "Exists"}]}, ""),
        (TAINTED, {"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}, ""),
        (TAINTED, {"tolerations": [{"key": "gpu", "value": "no"}]}, "taint gpu=yes:NoSchedule not tolerated"),
        (TAINTED, {"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoExecute"}]}, "taint gpu=yes:NoSchedule"),
        (TAINTED, {"tolerations": [{"key": "cpu", "operator": "Exists"}]}, "taint gpu=yes:NoSchedule not tolerated"),
        (node("a", taints=[{"key": "x", "effect": "NoExecute"}]), {}, "taint x:NoExecute not tolerated"),
        (node("a", taints=[{"key": "x", "effect": "PreferNoSchedule"}]), {}, ""),
        (node("a", labels={"zone": "1"}), {"nodeSelector": {"zone": "1"}}, ""),
        (node("a", labels={"zone": "1"}), {"nodeSelector": {"zone": "2"}}, NOT_SELECTED),
        (node("a"), {"nodeSelector": {"kubernetes.io/hostname": "a"}}, ""),
        (
            node("a", labels={"cores": "8"}),
            {"affinity": required({"key": "cores", "operator": "Gt", "values": ["4"]})},
            "",
        ),
        (node("a"), {"affinity": required({"key": "cores", "operator": "Exists"})}, NOT_SELECTED),
        (
            node("a"),
            {"affinity": required(fields=[{"key": "metadata.name", "operator": "In", "values": ["b"]}])},
            NOT_SELECTED,
        ),
        (node("a"), {"affinity": {"podAffinity": {}}}, ""),
    ],
)
def test_why_a_node_is_not_for_a_pod(where, spec, expected):
    assert found(where, **spec).startswith(expected)
    assert bool(found(where, **spec)) == bool(expected)


def test_a_selector_that_makes_no_sense_is_an_error():
    with pytest.raises(AllocationError, match="Near"):
        found(node("a"), affinity=required({"key": "x", "operator": "Near", "values": ["y"]}))
