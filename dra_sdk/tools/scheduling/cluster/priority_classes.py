"""PriorityClasses, and the priority and preemption policy that they give to pods.

Source: scheduling.k8s.io/v1 PriorityClass; admission plugin Priority; component-helpers, PodPriority.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.core_v1 import Int32, PartialTopLevel
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot

PREEMPT: Final = "PreemptLowerPriority"
"""The default `preemptionPolicy`."""
SYSTEM_CLASSES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""The classes of every cluster, and their priorities. Source: scheduling/v1."""


class PriorityClass(PartialTopLevel):
    """scheduling.k8s.io/v1 PriorityClass."""

    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str = PREEMPT


def with_priorities(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with `spec.priority` and `spec.preemptionPolicy` in each pod without a priority.

    As for a new pod, the class that the pod names decides, or else the global default class with the lowest value. A
    pod whose class is not in the snapshot does not change.
    """
    classes = {name: PriorityClass(value=value) for name, value in SYSTEM_CLASSES.items()}
    classes |= {obj["metadata"]["name"]: PriorityClass.model_validate(obj) for obj in snapshot.priority_classes}
    defaults = {name: priority_class for name, priority_class in classes.items() if priority_class.global_default}
    default = min(defaults, key=lambda name: (defaults[name].value, name), default="")
    pods = tuple(_with_priority(pod, classes, default) for pod in snapshot.pods)
    return replace(snapshot, pods=pods)


def missing_class(pod: JSON, snapshot: Snapshot) -> str:
    """Return the name of a pod's class if it is neither in the snapshot nor built in, else an empty string."""
    spec = pod.get("spec") or {}
    name = str(spec.get("priorityClassName") or "")
    if not name or spec.get("priority") is not None or name in SYSTEM_CLASSES:
        return ""
    return "" if any(obj["metadata"]["name"] == name for obj in snapshot.priority_classes) else name


def _with_priority(pod: JSON, classes: Mapping[str, PriorityClass], default: str) -> JSON:
    spec = pod.get("spec") or {}
    name = str(spec.get("priorityClassName") or "") or default
    if spec.get("priority") is not None or name not in classes:
        return pod
    chosen = classes[name]
    policy = spec.get("preemptionPolicy") or chosen.preemption_policy
    return pod | {
        "spec": {**spec, "priorityClassName": name, "priority": chosen.value, "preemptionPolicy": policy},
    }
