"""A plan of the fewest evictions that make room for a pod, of any priority: for people, not for a scheduler.

kube-scheduler evicts no pod for devices, see `preemption`. Here a pod's devices are free as soon as it is evicted. Pods
of DaemonSets and static pods stay. On each node, all others that use the node or devices that it can use are removed;
if the pod fits then, they are taken back one by one, the most important first, as long as it fits. Then smaller sets
are tried, until a set is found, none is left, or the number of trials is used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import AllocationError, Allocator, DeviceId
from dra_sdk.tools.scheduling.cluster.claim_controller import (
    claim_allocation,
    claim_results,
    consumer_uids,
    used_claims,
    without_hypothetical_allocations,
)
from dra_sdk.tools.scheduling.cluster.cluster_state import BoundPod, ClusterState, pod_key
from dra_sdk.tools.scheduling.cluster.core_v1 import Pod, pod_of
from dra_sdk.tools.scheduling.cluster.disruption_budgets import DisruptionBudgets
from dra_sdk.tools.scheduling.cluster.node_filter import NodeFilter, NodeFit
from dra_sdk.tools.scheduling.cluster.pod_requirements import PodRequirements, UnschedulableError
from dra_sdk.tools.scheduling.cluster.scheduling_cycle import schedule
from dra_sdk.tools.scheduling.cluster.scheduling_outcome import PlacementChange, SchedulingOutcome, compare_outcomes
from dra_sdk.tools.scheduling.cluster.snapshot import ObjectKey, Snapshot, display_name
from dra_sdk.tools.scheduling.cluster.what_if import WhatIfError

MAX_TRIALS: Final = 5_000
"""How many sets of pods are tried to be removed, each on one node."""
_STEPS: Final = 30_000
"""The steps of the search for devices in each trial."""
_STAYING: Final = {"DaemonSet", "Node"}


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """A pod to evict.

    pod: namespace and name.
    priority: its priority.
    owner: the kind and name of its controller; empty if it has none and would not come back.
    devices: the devices that it frees, as `driver/pool/device`.
    violates: whether its eviction violates a PodDisruptionBudget.
    """

    pod: ObjectKey
    priority: int
    owner: str
    devices: tuple[str, ...]
    violates: bool

    def to_json(self) -> JSON:
        """Return it as JSON."""
        namespace, name = self.pod
        fields: JSON = {"namespace": namespace, "name": name, "priority": self.priority, "owner": self.owner}
        return fields | {"devices": list(self.devices), "violatesDisruptionBudget": self.violates}


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """How to make room for a pod.

    pod: namespace and name.
    priority: its priority.
    node: where it fits after the evictions.
    evictions: the pods to evict; empty if it has a node already.
    fewest: whether fewer evictions help on no node; False if the search ended at its limit.
    trials: how many sets were tried.
    changes: what is different afterwards; evicted pods are scheduled again after the pod.
    """

    pod: ObjectKey
    priority: int
    node: str
    evictions: tuple[PlannedEviction, ...]
    fewest: bool
    trials: int
    changes: tuple[PlacementChange, ...]

    def to_json(self) -> JSON:
        """Return it as JSON."""
        namespace, name = self.pod
        fields: JSON = {"namespace": namespace, "name": name, "priority": self.priority, "node": self.node}
        fields |= {"evictions": [eviction.to_json() for eviction in self.evictions], "fewest": self.fewest}
        return fields | {"trials": self.trials, "changes": [change.to_json() for change in self.changes]}


class NoRoomError(WhatIfError):
    """No evictions make room for the pod, or none were found."""


def plan_evictions(outcome: SchedulingOutcome, key: ObjectKey, max_trials: int = MAX_TRIALS) -> EvictionPlan:
    """Return the plan for a pod of the outcome that has no node.

    WhatIfError if there is no such pod; NoRoomError, with the reason, if no evictions help.
    """
    placement = outcome.pods_by_key.get(key)
    if placement is None:
        raise WhatIfError(f"there is no pod {display_name(key)}")
    pod = pod_of(outcome.snapshot.pods_by_key[key])
    if placement.node is not None:
        return EvictionPlan(key, pod.spec.effective_priority, placement.node, (), True, 0, ())
    snapshot = without_hypothetical_allocations(outcome.snapshot, outcome.snapshot.hypothetical)
    search = _PlanSearch.of(snapshot, key, max_trials)
    cheapest, fewest = search.find()
    if cheapest is None:
        limit = "" if fewest else f" within {max_trials} trials"
        raise NoRoomError(f"no evictions make room for pod {display_name(key)}{limit}: {placement.reason}")
    node, victims = cheapest
    budgets = DisruptionBudgets(snapshot).violating([victim.pod for victim in victims])
    evictions = tuple(search.eviction(victim, violates=pod_key(victim.pod) in budgets) for victim in victims)
    after = schedule(search.carried_out(node, victims))
    changes = compare_outcomes(outcome, after)
    return EvictionPlan(key, pod.spec.effective_priority, node, evictions, fewest, search.trials, changes)


Victims = tuple[BoundPod, ...]


@dataclass(slots=True)
class _PlanSearch:
    """The search for the pods to evict, on the state of a cluster."""

    state: ClusterState
    requirements: PodRequirements
    node_filter: NodeFilter
    max_trials: int
    trials: int = 0
    _holders: dict[tuple[str, str], dict[ObjectKey, BoundPod]] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot, key: ObjectKey, max_trials: int) -> _PlanSearch:
        """Prepare the search; NoRoomError if the pod can run on no node at all."""
        state = ClusterState(snapshot)
        state.add_running_pods(map(pod_of, snapshot.pods))
        try:
            requirements = state.requirements_of(pod_of(snapshot.pods_by_key[key]))
        except (UnschedulableError, AllocationError) as error:
            raise NoRoomError(f"no evictions make room for pod {display_name(key)}: {error}") from error
        allocator = Allocator(state.inventory, snapshot.classes_by_name, max_steps=_STEPS)
        search = cls(state, requirements, NodeFilter(allocator, state.allocated, state.free_resources), max_trials)
        search._index_holders()
        return search

    def find(self) -> tuple[tuple[str, Victims] | None, bool]:
        """Return the node and the pods to evict, and whether there is certainly no smaller set."""
        best: tuple[str, Victims] | None = None
        candidates: list[tuple[JSON, Victims]] = []
        for node in self.state.nodes.values():
            evictable = self._evictable(node)
            if self.trials >= self.max_trials:
                return best, False
            if not self._fits(node, evictable):
                continue
            candidates.append((node, evictable))
            victims = self._reduced(node, evictable)
            if best is None or _cost(victims) < _cost(best[1]):
                best = node["metadata"]["name"], victims
        if best is None:
            return None, True
        for size in range(1, len(best[1]) + 1):
            smaller, complete = self._of_size(candidates, size, best[1])
            if smaller is not None:
                return smaller, True
            if not complete:
                return best, size == len(best[1])
        return best, True

    def _of_size(
        self, candidates: Sequence[tuple[JSON, Victims]], size: int, best: Victims
    ) -> tuple[tuple[str, Victims] | None, bool]:
        """Return the least important set of a size that is better than the best one, and whether all were tried."""
        cheapest: tuple[str, Victims] | None = None
        for node, evictable in candidates:
            for chosen in combinations(evictable, size):
                if _cost(chosen) >= _cost(cheapest[1] if cheapest else best):
                    continue
                if self.trials >= self.max_trials:
                    return cheapest, False
                if self._fits(node, chosen):
                    cheapest = node["metadata"]["name"], chosen
        return cheapest, True

    def _reduced(self, node: JSON, victims: Victims) -> Victims:
        """Take back as many pods as possible, the most important first."""
        left = victims
        for victim in sorted(victims, key=lambda candidate: -candidate.priority):
            if self.trials >= self.max_trials:
                break
            fewer = tuple(other for other in left if other is not victim)
            if self._fits(node, fewer):
                left = fewer
        return left

    def _evictable(self, node: JSON) -> Victims:
        """Return the pods that use the node, or devices that it can use, the least important first."""
        running = {pod_key(pod.pod): pod for pod in self.state.running_on(node["metadata"]["name"])}
        try:
            pools = [pool.id for pool in self.state.inventory.node_devices(node).pools]
        except AllocationError:
            pools = []
        for pool in pools:
            running |= self._holders.get(pool, {})
        evictable = [pod for pod in running.values() if not _owners(pod.pod) & _STAYING]
        return tuple(sorted(evictable, key=lambda pod: (pod.priority, pod_key(pod.pod))))

    def _index_holders(self) -> None:
        """Record which pods have devices of which pools."""
        for node in self.state.nodes:
            for running in self.state.running_on(node):
                for claim in used_claims(running.pod):
                    for result in claim_results(self.state.claims.get(claim, {})):
                        pool = result["driver"], result["pool"]
                        self._holders.setdefault(pool, {})[pod_key(running.pod)] = running

    def _fits(self, node: JSON, victims: Iterable[BoundPod]) -> bool:
        """Whether the pod fits on the node without these pods."""
        self.trials += 1
        with self._removed(list(victims)):
            try:
                return isinstance(self.node_filter.check(self.requirements, node), NodeFit)
            except AllocationError:
                return False

    @contextmanager
    def _removed(self, victims: Sequence[BoundPod]) -> Iterator[None]:
        """Free what pods use, for the time of the block."""
        claims = self._freed_claims(victims)
        for claim in claims:
            self.state.allocated.remove(claim)
        for victim in victims:
            self.state.free_resources.remove_pod(victim.pod.spec.node_name, victim.requests)
        try:
            yield
        finally:
            for claim in claims:
                self.state.allocated.add(claim)
            for victim in victims:
                self.state.free_resources.add_pod(victim.pod.spec.node_name, victim.requests)

    def _freed_claims(self, victims: Iterable[BoundPod]) -> list[JSON]:
        """Return the claims that only these pods use."""
        pods = list(victims)
        uids = {pod.pod.metadata.uid for pod in pods}
        keys = dict.fromkeys(key for pod in pods for key in used_claims(pod.pod))
        claims = [self.state.claims[key] for key in keys if key in self.state.claims]
        return [claim for claim in claims if claim_allocation(claim) is not None and consumer_uids(claim) <= uids]

    def eviction(self, victim: BoundPod, *, violates: bool) -> PlannedEviction:
        """Return what is to be said of a pod to evict."""
        owner = next((owner for owner in victim.pod.metadata.owner_references or () if owner.controller), None)
        devices = tuple(
            str(DeviceId.of(result)) for claim in self._freed_claims([victim]) for result in claim_results(claim)
        )
        name = f"{owner.kind} {owner.name}" if owner else ""
        return PlannedEviction(pod_key(victim.pod), victim.priority, name, devices, violates)

    def carried_out(self, node: str, victims: Victims) -> Snapshot:
        """Return the cluster with the pod on the node; the evicted pods wait."""
        self.state.evict(pod_key(victim.pod) for victim in victims)
        fit = self.node_filter.check(self.requirements, self.state.nodes[node])
        if not isinstance(fit, NodeFit):
            raise NoRoomError(f"pod {display_name(pod_key(self.requirements.pod))} does not fit on {node} after all")
        self.state.bind(self.requirements, fit)
        return self.state.snapshot()


def _cost(victims: Sequence[BoundPod]) -> tuple[int, int]:
    """Fewer pods are better, then less important ones."""
    return len(victims), sum(victim.priority for victim in victims)


def _owners(pod: Pod) -> set[str]:
    return {owner.kind for owner in pod.metadata.owner_references or () if owner.controller}
