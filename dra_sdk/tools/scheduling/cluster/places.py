"""Which nodes a pod may run on at all, whatever its claims: cordons, taints, selectors, affinity.

Source: scheduler plugins NodeUnschedulable, TaintToleration, NodeAffinity; in this order, of which the first decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.nodes import matches
from dra_sdk.tools.scheduling.cluster.core import Node, Pod, Taint, Toleration

CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_REPELLING: Final = {"NoSchedule", "NoExecute"}


def obstacle(pod: Pod, node: Node, obj: JSON) -> str:
    """Why the node (`obj` is it as JSON) is not for this pod; nothing if it is. AllocationError for a bad selector."""
    tolerations = pod.spec.tolerations
    if node.spec.unschedulable and not _tolerated(CORDON, tolerations):
        return "cordoned"
    for taint in node.spec.taints:
        if taint.effect in _REPELLING and not _tolerated(taint, tolerations):
            return f"taint {taint} not tolerated"
    if _is_selected(pod, obj):
        return ""
    return "not selected by nodeSelector or affinity"


def _is_selected(pod: Pod, node: JSON) -> bool:
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity
    return affinity is None or affinity.required is None or matches(affinity.required.to_json(), node)


def _tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or (toleration.operator in {"", "Equal"} and toleration.value == taint.value)
