"""Schedules a whole snapshot, as kube-scheduler and the controllers around it do.

Pods whose devices have a NoExecute taint are evicted, and claims are made from templates. Pods are scheduled by
priority, then by age. Each is bound to the node with the best alternatives for its claims; of equally good nodes, to
the first in the snapshot (kube-scheduler weighs other scores and then chooses at random). A pod that fits nowhere may
preempt others. Finally, claims that no pod uses are allocated. Volumes, ports, topology spread and affinity between
pods are ignored.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import (
    MAX_STEPS,
    AllocatedState,
    AllocationError,
    Allocator,
    PoolProblem,
    SearchLimitError,
)
from dra_sdk.tools.scheduling.cluster.claim_controller import (
    EXTENDED_CLAIM_ANNOTATION,
    claim_allocation,
    is_finished,
    is_reserved_for,
    owner_uids,
    used_claims,
    with_current_reservations,
    with_recreated_pods,
    without_hypothetical_allocations,
)
from dra_sdk.tools.scheduling.cluster.cluster_state import ClusterState, pod_key
from dra_sdk.tools.scheduling.cluster.core_v1 import Pod, pod_of
from dra_sdk.tools.scheduling.cluster.device_taint_eviction import Eviction, find_evictions
from dra_sdk.tools.scheduling.cluster.disruption_budgets import DisruptionBudgets
from dra_sdk.tools.scheduling.cluster.node_filter import (
    UNSCHEDULABLE_TAINT,
    CandidateNodes,
    NodeFilter,
    NodeFit,
    NodePass,
    NodeRejection,
    node_taints,
    required_node_names,
)
from dra_sdk.tools.scheduling.cluster.pod_groups import GROUPS_GATE, group_key
from dra_sdk.tools.scheduling.cluster.pod_requirements import PodRequirements, UnschedulableError
from dra_sdk.tools.scheduling.cluster.preemption import DefaultPreemption
from dra_sdk.tools.scheduling.cluster.priority_classes import with_priorities
from dra_sdk.tools.scheduling.cluster.scheduling_outcome import (
    ClaimOutcome,
    PodPlacement,
    Preemption,
    SchedulingOutcome,
)
from dra_sdk.tools.scheduling.cluster.simulation_notes import simulation_notes
from dra_sdk.tools.scheduling.cluster.snapshot import (
    Count,
    ObjectKey,
    Snapshot,
    display_name,
    generated_uid,
    grouped,
    no_count,
)
from dra_sdk.tools.scheduling.cluster.workloads import with_daemon_pods

_MIN_FEASIBLE_NODES: Final = 100
"""Source: kube-scheduler, minFeasibleNodesToFind."""
_MIN_STEPS: Final = 30_000


def schedule(snapshot: Snapshot, max_steps: int = MAX_STEPS, count: Count = no_count) -> SchedulingOutcome:
    """Schedule all pods and claims. Pods that already run stay on their node unless they are evicted.

    A search for devices is stopped after `max_steps`. After each stopped search the limit is halved, down to 30 000
    steps, so that many claims without a solution do not take too long. `count` is called with how many pods were tried.
    """
    snapshot = with_current_reservations(snapshot)
    evicted = find_evictions(snapshot)
    removed = [pod_of(snapshot.pods_by_key[key]) for key in evicted.pods]
    current = without_hypothetical_allocations(with_recreated_pods(snapshot, removed), evicted.hypothetical)
    current = with_priorities(with_daemon_pods(current))
    run = _SchedulingRun(_without_stale_claims(current), max_steps)
    run.schedule_pods(count)
    run.allocate_unused_claims()
    after = run.state.snapshot()
    placements = run.placements()
    notes = (*simulation_notes(after, placements), *(_pool_note(problem) for problem in run.state.inventory.problems))
    evictions = {**evicted.pods, **evicted.hypothetical, **run.preempted}
    return SchedulingOutcome(after, placements, tuple(run.claim_outcomes()), evictions, notes, tuple(run.preemptions))


class _SchedulingRun:
    """One pass over all pods and claims of a snapshot."""

    def __init__(self, snapshot: Snapshot, max_steps: int) -> None:
        self.state = state = ClusterState(snapshot)
        self._profile = snapshot.profile
        self._allocator = Allocator(
            state.inventory,
            snapshot.classes_by_name,
            share_id=partial(next, _share_ids(state.allocated)),
            max_steps=max_steps,
        )
        self._node_filter = NodeFilter(self._allocator, state.allocated, state.free_resources)
        self._nodes = state.nodes
        self._pods = [pod for obj in state.pods.values() if not is_finished(pod := pod_of(obj))]
        self._members = Counter(group_key(pod) for pod in self._pods)
        self._candidates = defaultdict[str, CandidateNodes](partial(CandidateNodes, self._nodes))
        self._preemption = DefaultPreemption(state, self._node_filter, DisruptionBudgets(snapshot))
        self.preemptions: list[Preemption] = []
        self.preempted: dict[ObjectKey, Eviction] = {}
        self._placed: dict[ObjectKey, PodPlacement] = {}
        self._reasons: dict[ObjectKey, str] = {}

    def schedule_pods(self, count: Count = no_count) -> None:
        """Find a node for every pod without one; they try again after claims were deallocated or pods evicted."""
        waiting = sorted((pod for pod in self._pods if not pod.spec.node_name), key=_queue_order)
        self.state.add_running_pods(self._pods)
        for pod in waiting:
            self._nominate(pod)
        while waiting:
            done = len(self.preemptions)
            deallocated = 0
            for index, pods in enumerate(self._in_groups(waiting)):
                count(index, len(waiting))
                is_group = pods[0].spec.group and self._profile.enabled(GROUPS_GATE)
                deallocated += self._schedule_gang(pods) if is_group else self._schedule_pod(pods[0])
            waiting = [pod for pod in waiting if self._placed[pod_key(pod)].node is None]
            victims = self._evict(self.preemptions[done:])
            waiting = sorted([*waiting, *victims], key=_queue_order) if victims or deallocated else []
        for pod in self._pods:
            if pod.spec.node_name:
                self._placed[pod_key(pod)] = self._running_placement(pod)

    def allocate_unused_claims(self) -> None:
        """Allocate claims that no pod uses, as if a pod used them that tolerates all taints, but no cordon.

        Those of pods that have ended are left alone.
        """
        used = {key for obj in self.state.pods.values() for key in used_claims(pod_of(obj))}
        taints = {taint["key"] for node in self._nodes.values() for taint in node_taints(node)}
        tolerations = [{"key": key, "operator": "Exists"} for key in sorted(taints - {UNSCHEDULABLE_TAINT["key"]})]
        for key in [key for key in self.state.claims if key not in used and not self.state.is_allocated(key)]:
            claim = {"name": key[1], "resourceClaimName": key[1]}
            spec = {"resourceClaims": [claim], "tolerations": tolerations}
            fit, reason, _ = self._find_node(pod_of({"metadata": {"namespace": key[0]}, "spec": spec}))
            if fit is None:
                self._reasons[key] = reason
            else:
                self.state.allocate_hypothetically(key, fit.node, fit.allocations[key[1]])

    def placements(self) -> tuple[PodPlacement, ...]:
        """Return one placement for each pod, in the order of the snapshot."""
        return tuple(self._placed[pod_key(pod)] for pod in self._pods)

    def claim_outcomes(self) -> list[ClaimOutcome]:
        """Return one outcome for each claim."""
        users = {key: placement for placement in reversed(self.placements()) for key in placement.claims}
        outcomes = []
        for key, claim in self.state.claims.items():
            user, failure = users.get(key), self._reasons.get(key)
            node = self.state.hypothetical.get(key) or (user.node if user else None)
            reason = failure or (user.reason if user and claim_allocation(claim) is None else "")
            hypothetical = key in self.state.hypothetical or failure is not None
            outcomes.append(ClaimOutcome(key, claim_allocation(claim), node, reason, hypothetical))
        return outcomes

    def _in_groups(self, waiting: Iterable[Pod]) -> list[list[Pod]]:
        """Return the pods as they are scheduled: those of a PodGroup together, when the first of them would be."""
        if not self._profile.enabled(GROUPS_GATE):
            return [[pod] for pod in waiting]
        together = grouped(waiting, lambda pod: group_key(pod) if pod.spec.group else (*pod_key(pod), ""))
        return list(together.values())

    def _schedule_gang(self, pods: Sequence[Pod]) -> int:
        """Bind the pods of a PodGroup, or none of them if it is a gang and too few fit; they evict no others.

        Return how many claims were deallocated, which happens only if none was bound.
        """
        key = group_key(pods[0])
        group = self.state.pod_groups.get(key)
        members = self._members[key]
        needed = group.min_count if group is not None and self._profile.schedules_gangs else 0
        if group is None or members < needed:
            missing = f"has {members} of the {needed} pods that it needs" if group else "does not exist"
            return self._wait(pods, f"PodGroup {key[1]} {missing}")
        before = dict(self.state.claims), dict(self.state.pods)
        stuck = [requirements for pod in pods if (requirements := self._bind_or_explain(pod)) is not None]
        bound = [pod_key(pod) for pod in pods if self._placed[pod_key(pod)].node is not None]
        running = members - len(pods) + len(bound)
        if running and running >= needed:
            return 0
        unusable = [(some, list(self._candidates[some.equivalence_key].unusable_claims)) for some in stuck]
        if bound:
            self.state.unbind(bound, *before)
            self._forget_rejections()
        if needed:
            failed = next(placed for pod in pods if (placed := self._placed[pod_key(pod)]).node is None)
            fit = f"PodGroup {key[1]} needs {needed} pods, of which {running} fit"
            self._wait(pods, f"{fit}; pod {failed.pod[1]}: {failed.reason}")
        unused = str(group.metadata.uid) if members == len(pods) else ""
        return sum(self._deallocate(some, names, unused) for some, names in unusable)

    def _wait(self, pods: Iterable[Pod], reason: str) -> int:
        """Record why pods are not placed."""
        for pod in pods:
            self._placed[pod_key(pod)] = PodPlacement(pod_key(pod), None, reason, tuple(used_claims(pod)))
        return 0

    def _schedule_pod(self, pod: Pod) -> int:
        """Bind a pod, or record why it cannot be bound; return how many claims were deallocated."""
        requirements = self._bind_or_explain(pod)
        if requirements is None:
            return 0
        if preemption := self._preemption.preempt(requirements):
            self.preemptions.append(preemption)
        candidates = self._candidates[requirements.equivalence_key]
        return self._deallocate(requirements, candidates.unusable_claims)

    def _bind_or_explain(self, pod: Pod) -> PodRequirements | None:
        """Bind a pod, or record why it cannot be bound and return what it needs, if that may change."""
        key = pod_key(pod)
        fit, reason, requirements = self._find_node(pod)
        if fit is not None and (reason := self.state.bind_refusal(fit)):
            self._placed[key] = PodPlacement(key, None, reason, tuple(used_claims(pod)))
            return None
        if requirements is not None and fit is not None:
            self._preemption.withdraw(pod)
            self._placed[key] = PodPlacement(key, fit.node, claims=self.state.bind(requirements, fit), scheduled=True)
            return None
        self._placed[key] = PodPlacement(key, None, reason, tuple(used_claims(pod)))
        return requirements

    def _nominate(self, pod: Pod) -> None:
        """Keep room for a pod that the scheduler of a running cluster has nominated for a node."""
        if pod.status.nominated_node_name in self._nodes:
            with suppress(UnschedulableError):
                self._preemption.nominate(pod.status.nominated_node_name, self.state.requirements_of(pod))

    def _evict(self, preemptions: Sequence[Preemption]) -> list[Pod]:
        """Evict the victims of preemptions; return them as they wait for a node again."""
        reasons: dict[ObjectKey, Eviction] = {}
        for preemption in preemptions:
            who = f"preempted by pod {display_name(preemption.pod)} of priority {preemption.priority}"
            for key in preemption.victims:
                reasons.setdefault(key, Eviction(preemption.node, f"{who} for {', '.join(preemption.missing)}"))
        if not reasons:
            return []
        self.preempted |= reasons
        victims = self.state.evict(reasons)
        self._preemption.budgets.evict(victims)
        self._forget_rejections()
        waiting = {pod_key(pod): pod for pod in victims}
        self._pods = [waiting.get(pod_key(pod), pod) for pod in self._pods]
        return victims

    def _find_node(self, pod: Pod) -> tuple[NodeFit | None, str, PodRequirements | None]:
        try:
            requirements = self.state.requirements_of(pod)
            return *self._best_node(requirements), requirements
        except (UnschedulableError, AllocationError) as error:
            if isinstance(error, SearchLimitError):
                limit = self._allocator.max_steps
                self._allocator.max_steps = min(limit, max(_MIN_STEPS, limit // 2))
            return None, str(error), None

    def _best_node(self, requirements: PodRequirements) -> tuple[NodeFit | None, str]:
        """Return the first of the nodes with the best score, or why there is none.

        In a small cluster, kube-scheduler examines all nodes, and an error on any of them ends the attempt.
        """
        candidates = self._candidates[requirements.equivalence_key]
        nominated = self._preemption.nominated_node(requirements.pod)
        if nominated is not None and isinstance(fit := self._check(requirements, self._nodes[nominated]), NodeFit):
            return fit, ""
        names = required_node_names(requirements.pod)
        if names is not None:
            # All other nodes reject the pod. They are asked for the reasons if it does not fit.
            attempt, best = NodePass(names), None
            try:
                best = self._best_of(requirements, candidates.named(names), attempt)
            finally:
                if best or attempt.last:
                    candidates.defer(attempt)
            if best:
                return best, ""
        candidates.catch_up(partial(self._check, requirements))
        attempt = NodePass()
        try:
            best = self._best_of(requirements, candidates, attempt)
        finally:
            for name, rejection in attempt.rejected.items():
                candidates.reject(name, rejection)
        return best, "" if best else candidates.summary(requirements, self._node_filter)

    def _best_of(self, requirements: PodRequirements, nodes: Iterable[JSON], attempt: NodePass) -> NodeFit | None:
        """Return the first of some nodes with the best score."""
        best, best_score = None, -1
        enough = requirements.best_score if len(self._nodes) >= _MIN_FEASIBLE_NODES else None
        for node in nodes:
            attempt.last = node["metadata"]["name"]
            checked = self._check(requirements, node)
            if isinstance(checked, NodeRejection):
                attempt.rejected[attempt.last] = checked
            elif (score := requirements.score(checked.allocations)) > best_score:
                best, best_score = checked, score
                if score == enough:
                    return best
        attempt.last = ""
        return best

    def _check(self, requirements: PodRequirements, node: JSON) -> NodeFit | NodeRejection:
        """Check a node as if the pods that are nominated for it were there."""
        name, free = node["metadata"]["name"], self.state.free_resources
        others = list(self._preemption.nominated_on(name, requirements.pod))
        if not others:
            return self._node_filter.check(requirements, node)
        with free.restored(name):
            for pod in others:
                free.add_pod(name, pod.requests)
            return self._node_filter.check(requirements, node)

    def _deallocate(self, requirements: PodRequirements, names: Iterable[str], group: str = "") -> int:
        """Deallocate claims that some node cannot use and no other pod uses, so that the pod may fit next time."""
        count = self.state.deallocate_unused(requirements, names, group)
        if count:
            self._forget_rejections()
        return count

    def _forget_rejections(self) -> None:
        self._candidates.clear()
        self._preemption.cluster_changed()

    def _running_placement(self, pod: Pod) -> PodPlacement:
        """Return the placement of a pod with `spec.nodeName`, for which the scheduler allocates nothing."""
        key, claims = pod_key(pod), tuple(used_claims(pod))
        for claim in claims:
            if not is_reserved_for(self.state.claims.get(claim, {}), pod):
                reason = f"spec.nodeName bypasses the scheduler, so nothing allocates claim {claim[1]} for it"
                return PodPlacement(key, None, reason, claims)
        return PodPlacement(key, pod.spec.node_name, claims=claims)


def _share_ids(allocated: AllocatedState) -> Iterator[str]:
    """Return unused share IDs that are the same in every run."""
    used = {share_id for ids in allocated.share_ids.values() for share_id in ids}
    return (fresh for number in itertools.count() if (fresh := generated_uid("Share", ("", str(number)))) not in used)


def _pool_note(problem: PoolProblem) -> str:
    return f"pool {problem.pool} of driver {problem.driver} is {problem.kind}: {problem.reason}"


def _queue_order(pod: Pod) -> tuple[int, bool, str]:
    """Sort by priority, then by age; pods that were not created yet come last, in the order of the snapshot."""
    created = pod.metadata.creation_timestamp
    return -pod.spec.effective_priority, created is None, created or ""


def _without_stale_claims(snapshot: Snapshot) -> Snapshot:
    """Remove claims for extended resources of pods without a node: the scheduler makes new ones each time."""
    extended = [
        claim
        for claim in snapshot.claims
        if (claim["metadata"].get("annotations") or {}).get(EXTENDED_CLAIM_ANNOTATION) == "true"
    ]
    if not extended:
        return snapshot
    waiting = {pod.metadata.uid for obj in snapshot.pods if not (pod := pod_of(obj)).spec.node_name}
    stale = {id(claim) for claim in extended if waiting & owner_uids(claim)}
    return replace(snapshot, claims=tuple(claim for claim in snapshot.claims if id(claim) not in stale))
