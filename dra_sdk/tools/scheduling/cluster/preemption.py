"""Preemption: which pods of lower priority are evicted so that a pod fits on a node.

kube-scheduler preempts no pod for its devices: the plugin DynamicResources takes the allocated devices once for each
attempt, has no PreFilterExtensions that would free those of a removed pod, and calls a node without devices
UnschedulableAndUnresolvable, so the node is no candidate. Pods are evicted for CPU, memory, device plugins' resources
and the number of pods, on nodes where the devices are free anyway.
Source: scheduler plugin DefaultPreemption, package preemption (1.36, 1.37).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import AllocationError
from dra_sdk.tools.scheduling.cluster.cluster_state import BoundPod, ClusterState, pod_key
from dra_sdk.tools.scheduling.cluster.core_v1 import Pod
from dra_sdk.tools.scheduling.cluster.disruption_budgets import DisruptionBudgets
from dra_sdk.tools.scheduling.cluster.node_filter import NodeFilter, NodeRejection, rejection_reason
from dra_sdk.tools.scheduling.cluster.pod_requirements import PodRequirements
from dra_sdk.tools.scheduling.cluster.scheduling_outcome import Preemption
from dra_sdk.tools.scheduling.cluster.snapshot import ObjectKey
from dra_sdk.wire.resource.base import Time

NEVER: Final = "Never"
"""The `preemptionPolicy` of pods that evict no others."""
_MIN_CANDIDATES: Final = 100
_CANDIDATE_SHARE: Final = 10
"""In percent. Source: DefaultPreemptionArgs, minCandidateNodesAbsolute and minCandidateNodesPercentage."""
_PRIORITY_OFFSET: Final = 2**31
_MAX_ATTEMPTS: Final = 10
"""How often one pod preempts others; in a cluster there is no limit, but others may take what was freed each time."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A node, the pods to evict there, the more important first, and how many of them violate a budget."""

    node: str
    victims: Sequence[BoundPod]
    violations: int
    missing: tuple[str, ...]

    @property
    def order(self) -> tuple[float, ...]:
        """The smaller, the better. Source: pickOneNodeForPreemption."""
        priorities = [victim.priority for victim in self.victims]
        highest = max(priorities)
        earliest = min(_started(victim.pod) for victim in self.victims if victim.priority == highest)
        total = sum(priority + _PRIORITY_OFFSET for priority in priorities)
        return self.violations, highest, total, len(priorities), -earliest


@dataclass(slots=True)
class DefaultPreemption:
    """PostFilter of the plugin DefaultPreemption, on the state of a cluster.

    state: the cluster.
    node_filter: says whether a pod fits on a node of this cluster.
    budgets: the disruption budgets.
    """

    state: ClusterState
    node_filter: NodeFilter
    budgets: DisruptionBudgets
    _nominated: dict[ObjectKey, tuple[str, PodRequirements]] = field(default_factory=dict)
    _attempts: dict[ObjectKey, int] = field(default_factory=dict)
    _hopeless: set[tuple[str, int]] = field(default_factory=set)

    def nominated_node(self, pod: Pod) -> str | None:
        """Return the node for which a pod has evicted others, None if it has not."""
        return self._nominated.get(pod_key(pod), (None,))[0]

    def nominate(self, node: str, requirements: PodRequirements) -> None:
        """Keep room on the node for a pod that others were evicted for, also before this run."""
        self._nominated[pod_key(requirements.pod)] = node, requirements

    def withdraw(self, pod: Pod) -> None:
        """Forget the node for which a pod is nominated: it has found one."""
        self._nominated.pop(pod_key(pod), None)

    def nominated_on(self, node: str, pod: Pod) -> Iterator[PodRequirements]:
        """Yield the other pods that are nominated for a node and to which this pod yields, by their priority."""
        for name, requirements in self._nominated.values():
            other = requirements.pod
            yields = other.spec.effective_priority >= pod.spec.effective_priority
            if name == node and yields and other.metadata.uid != pod.metadata.uid:
                yield requirements

    def cluster_changed(self) -> None:
        """Try again what could not be made possible before: pods were evicted, or claims deallocated."""
        self._hopeless.clear()

    def preempt(self, requirements: PodRequirements) -> Preemption | None:
        """Choose the pods to evict for a pod that fits nowhere, and nominate it; None if that would not help.

        The victims stay where they are; `ClusterState.evict` removes them.
        """
        pod = requirements.pod
        key, priority = pod_key(pod), pod.spec.effective_priority
        kind = (requirements.equivalence_key, priority)
        if pod.spec.preemption_policy == NEVER or kind in self._hopeless:
            return None
        if self._attempts.get(key, 0) >= _MAX_ATTEMPTS:
            return None
        best = min(self._candidates(requirements), key=lambda candidate: candidate.order, default=None)
        if best is None:
            self._hopeless.add(kind)
            self.withdraw(pod)
            return None
        self._attempts[key] = self._attempts.get(key, 0) + 1
        for other, (node, waiting) in list(self._nominated.items()):
            if node == best.node and waiting.pod.spec.effective_priority < priority:
                del self._nominated[other]
        self.nominate(best.node, requirements)
        victims = tuple(pod_key(victim.pod) for victim in best.victims)
        return Preemption(key, priority, best.node, victims, best.missing, best.violations)

    def _candidates(self, requirements: PodRequirements) -> list[_Candidate]:
        """Return nodes where evictions help; as kube-scheduler, not all of them in a large cluster."""
        nodes = [node for node in self.state.nodes.values() if self._may_help(requirements, node)]
        enough = max(_MIN_CANDIDATES, len(nodes) * _CANDIDATE_SHARE // 100)
        candidates: list[_Candidate] = []
        for node in nodes:
            if candidate := self._dry_run(requirements, node):
                candidates.append(candidate)
                if len(candidates) >= enough and any(not other.violations for other in candidates):
                    break
        return candidates

    def _may_help(self, requirements: PodRequirements, node: JSON) -> bool:
        """Whether a node rejects the pod for something that evictions may change, and has pods of lower priority."""
        priority = requirements.pod.spec.effective_priority
        if all(pod.priority >= priority for pod in self.state.running_on(node["metadata"]["name"])):
            return False
        try:
            return not rejection_reason(requirements.pod, node) and bool(self._missing(requirements, node))
        except AllocationError:
            return False

    def _dry_run(self, requirements: PodRequirements, node: JSON) -> _Candidate | None:
        """Remove all pods of lower priority, and take back as many as possible. Source: SelectVictimsOnNode."""
        name, free = node["metadata"]["name"], self.state.free_resources
        missing = self._missing(requirements, node)
        priority = requirements.pod.spec.effective_priority
        lower = [running for running in self.state.running_on(name) if running.priority < priority]
        lower.sort(key=lambda running: (-running.priority, _started(running.pod)))
        with free.restored(name):
            for other in self.nominated_on(name, requirements.pod):
                free.add_pod(name, other.requests)
            for running in lower:
                free.remove_pod(name, running.requests)
            try:
                if isinstance(self.node_filter.check(requirements, node), NodeRejection):
                    return None
            except AllocationError:
                return None
            violating = self.budgets.violating([running.pod for running in lower])
            victims = []
            for running in sorted(lower, key=lambda victim: pod_key(victim.pod) not in violating):
                free.add_pod(name, running.requests)
                if self._lacking(requirements, name):
                    free.remove_pod(name, running.requests)
                    victims.append(running)
        if not victims:
            return None
        victims.sort(key=lambda victim: (-victim.priority, _started(victim.pod)))
        violations = sum(pod_key(victim.pod) in violating for victim in victims)
        return _Candidate(name, victims, violations, tuple(missing))

    def _missing(self, requirements: PodRequirements, node: JSON) -> list[str]:
        """Return the resources of which a node has too little, with the pods that are nominated for it."""
        name, free = node["metadata"]["name"], self.state.free_resources
        with free.restored(name):
            for other in self.nominated_on(name, requirements.pod):
                free.add_pod(name, other.requests)
            return self._lacking(requirements, name)

    def _lacking(self, requirements: PodRequirements, node: str) -> list[str]:
        free = self.state.free_resources
        as_devices = free.without_device_plugin(node, requirements.extended_resources)
        return free.missing_resources(node, requirements.requests, as_devices)


def _started(pod: Pod) -> float:
    """Return when a pod started; one that has not started counts as the latest."""
    start = pod.status.start_time
    return inf if start is None else Time(start).instant.timestamp()
