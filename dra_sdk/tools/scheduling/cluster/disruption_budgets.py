"""PodDisruptionBudgets: which pods may be evicted without violating one.

Source: policy/v1 PodDisruptionBudget; controller/disruption; scheduler plugin DefaultPreemption,
filterPodsWithPDBViolation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any, Final

from pydantic import Field

from dra_sdk.tools.scheduling.allocator.node_selection import label_matches
from dra_sdk.tools.scheduling.cluster.claim_controller import is_finished
from dra_sdk.tools.scheduling.cluster.core_v1 import PartialObject, PartialTopLevel, Pod, pod_of
from dra_sdk.tools.scheduling.cluster.snapshot import ObjectKey, Snapshot

_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


class PodDisruptionBudgetSpec(PartialObject):
    """policy/v1 PodDisruptionBudgetSpec."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: dict[str, Any] = Field(default_factory=dict)


class PodDisruptionBudgetStatus(PartialObject):
    """policy/v1 PodDisruptionBudgetStatus; None: the controller has not written it."""

    disruptions_allowed: int | None = None
    disrupted_pods: dict[str, Any] = Field(default_factory=dict)


class PodDisruptionBudget(PartialTopLevel):
    """policy/v1 PodDisruptionBudget."""

    spec: PodDisruptionBudgetSpec = Field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = Field(default_factory=PodDisruptionBudgetStatus)

    def selects(self, pod: Pod) -> bool:
        """Return whether the budget is for the pod. A pod without labels has none."""
        labels = pod.metadata.labels or {}
        same_namespace = pod.metadata.namespace == self.metadata.namespace
        return bool(labels) and same_namespace and matches_labels(self.spec.selector, labels)

    def allowed(self, pods: Iterable[Pod]) -> int:
        """Return how many of these pods of the cluster may be evicted.

        That is `status.disruptionsAllowed`, or else what the controller would write there if the pods that run were
        healthy and as many were expected as there are.
        """
        if self.status.disruptions_allowed is not None:
            return self.status.disruptions_allowed
        selected = [pod for pod in pods if self.selects(pod) and not is_finished(pod)]
        healthy = sum(bool(pod.spec.node_name) for pod in selected)
        if self.spec.max_unavailable is not None:
            desired = len(selected) - _scaled(self.spec.max_unavailable, len(selected))
        else:
            desired = _scaled(self.spec.min_available or 0, len(selected))
        return max(0, healthy - max(0, desired))


def matches_labels(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether a meta/v1 LabelSelector matches labels.

    An empty selector matches nothing, as in kube-scheduler, and so does an unknown operator.
    """
    equal, expressions = selector.get("matchLabels") or {}, selector.get("matchExpressions") or ()
    return (
        bool(equal or expressions)
        and all(labels.get(key) == (value or "") for key, value in equal.items())
        and all(entry and entry.get("operator") in _OPERATORS and label_matches(entry, labels) for entry in expressions)
    )


def _scaled(value: int | str, total: int) -> int:
    """Return a number, or a percentage of the total, rounded up; 0 for other text."""
    if isinstance(value, int):
        return value
    number = value.removesuffix("%")
    return ceil(int(number) * total / 100) if number.isdecimal() else 0


class DisruptionBudgets:
    """The budgets of a cluster while pods are evicted, and how many evictions each one still allows."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._budgets = [PodDisruptionBudget.model_validate(budget) for budget in snapshot.disruption_budgets]
        pods = [pod_of(pod) for pod in snapshot.pods] if self._budgets else []
        self._left = [budget.allowed(pods) for budget in self._budgets]

    def violating(self, pods: Sequence[Pod]) -> set[ObjectKey]:
        """Return which of these pods would violate a budget if they were evicted in this order."""
        left = list(self._left)
        keys = set()
        for pod in pods:
            for index in self._indexes_for(pod):
                left[index] -= 1
                if left[index] < 0:
                    keys.add((pod.metadata.namespace, pod.metadata.name))
        return keys

    def evict(self, pods: Iterable[Pod]) -> None:
        """Count evictions: for each of these pods, its budgets allow one less."""
        for pod in pods:
            for index in self._indexes_for(pod):
                self._left[index] -= 1

    def _indexes_for(self, pod: Pod) -> Iterator[int]:
        for index, budget in enumerate(self._budgets):
            if pod.metadata.name not in budget.status.disrupted_pods and budget.selects(pod):
                yield index
