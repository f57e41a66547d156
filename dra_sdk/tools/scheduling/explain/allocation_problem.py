"""What is explained: a claim, or the claims of a pod, and the problem of allocating them.

The problem starts from the cluster as it is after everything else is scheduled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self

from dra_sdk.errors import DraError
from dra_sdk.model import JSON
from dra_sdk.texts import did_you_mean, shortened
from dra_sdk.tools.scheduling.allocator import (
    AllocatedState,
    AllocationError,
    Allocator,
    DeviceId,
    InvalidPoolsError,
    Inventory,
    SchedulerFeatures,
    SearchLimitError,
    SelectorError,
)
from dra_sdk.tools.scheduling.allocator.allocated_state import held_devices
from dra_sdk.tools.scheduling.allocator.claim_requests import ParsedClaim
from dra_sdk.tools.scheduling.allocator.selectors import SelectorCache
from dra_sdk.tools.scheduling.cluster.claim_controller import claim_allocation, deallocated
from dra_sdk.tools.scheduling.cluster.cluster_state import ClusterState
from dra_sdk.tools.scheduling.cluster.core_v1 import Pod, pod_of
from dra_sdk.tools.scheduling.cluster.extended_resources import extended_resource_claim
from dra_sdk.tools.scheduling.cluster.node_filter import device_independent_rejection, rejection_reason
from dra_sdk.tools.scheduling.cluster.pod_requirements import PodRequirements, UnschedulableError
from dra_sdk.tools.scheduling.cluster.scheduling_outcome import PodPlacement, SchedulingOutcome
from dra_sdk.tools.scheduling.cluster.snapshot import ObjectKey, Snapshot, display_name, object_key

MAX_STEPS: Final = 100_000
"""The largest number of steps of a search; fewer than the scheduler's, because explanations search often."""
TRIAL_STEPS: Final = 30_000
"""The same for trials of changes, of which there are many."""


@dataclass(frozen=True, slots=True)
class AllocationAttempt:
    """What the allocator returns for one node.

    allocations: one for each claim, in order; None if they do not fit.
    error: why the allocation ended with an error; empty if it did not.
    final: whether kube-scheduler tries no other node after the error.
    given_up: whether the search took too many steps.
    """

    allocations: tuple[JSON, ...] | None = None
    error: str = ""
    final: bool = False
    given_up: bool = False

    @property
    def fits(self) -> bool:
        """Whether the claims can be allocated."""
        return self.allocations is not None


@dataclass(frozen=True)
class AllocationProblem:
    """Claims to allocate together, and everything that decides whether that is possible.

    Everything that a change may relax is a field, so that a trial is the same problem with one field changed.

    nodes, slices, rules: the objects of the cluster.
    classes: the DeviceClasses by name.
    features: what the scheduler can do.
    claims: the claims; the last one is explained.
    allocated_claims: all other claims that are allocated.
    max_steps: the largest number of steps of a search.
    """

    nodes: tuple[JSON, ...]
    slices: tuple[JSON, ...]
    rules: tuple[JSON, ...]
    classes: Mapping[str, JSON]
    features: SchedulerFeatures
    claims: tuple[JSON, ...]
    allocated_claims: tuple[JSON, ...]
    max_steps: int = MAX_STEPS

    def with_changes(self, **changes: object) -> Self:
        """Return the problem with other fields; what does not depend on them is not calculated again."""
        changed: Self = replace(self, **changes)  # type: ignore[arg-type]  # (the names are those of the fields)
        if "features" not in changes:
            changed.__dict__["selectors"] = self.selectors
        if not {"slices", "rules", "features"} & set(changes):
            changed.__dict__["inventory"] = self.inventory
            if not {"classes", "max_steps"} & set(changes):
                changed.__dict__["allocator"] = self.allocator
        if "allocated_claims" not in changes:
            changed.__dict__["allocated"] = self.allocated
        return changed

    @cached_property
    def inventory(self) -> Inventory:
        """The devices."""
        return Inventory(self.slices, self.features, self.rules)

    @cached_property
    def selectors(self) -> SelectorCache:
        """The compiled selectors and their results so far."""
        return SelectorCache(self.features.cel)

    @cached_property
    def allocator(self) -> Allocator:
        """The allocator."""
        allocator = Allocator(self.inventory, self.classes, max_steps=self.max_steps)
        allocator.selectors = self.selectors
        return allocator

    @cached_property
    def allocated(self) -> AllocatedState:
        """What the allocated claims hold."""
        return AllocatedState.of(self.allocated_claims)

    @property
    def claim(self) -> JSON:
        """The claim that is explained."""
        return self.claims[-1]

    @cached_property
    def parsed_claim(self) -> ParsedClaim:
        """The claim that is explained, parsed; AllocationError if it cannot be processed."""
        return self.allocator.parse(self.claim)

    def allocate_on(self, node: JSON, claims: Iterable[JSON] | None = None) -> AllocationAttempt:
        """Try to allocate the claims, or others in their place, on a node."""
        try:
            allocations = self.allocator.allocate(node, list(self.claims if claims is None else claims), self.allocated)
        except InvalidPoolsError as error:
            return AllocationAttempt(error=str(error))
        except SearchLimitError as error:
            return AllocationAttempt(error=short_error(error), final=True, given_up=True)
        except AllocationError as error:
            return AllocationAttempt(error=short_error(error), final=True)
        return AllocationAttempt(None if allocations is None else tuple(allocations))

    @cached_property
    def claims_by_device(self) -> Mapping[DeviceId, tuple[JSON, ...]]:
        """The claims that hold each device, except those with admin access."""
        holders: dict[DeviceId, tuple[JSON, ...]] = {}
        for claim in self.allocated_claims:
            for device, _ in held_devices(claim):
                holders[device] = (*holders.get(device, ()), claim)
        return holders


def short_error(error: AllocationError) -> str:
    """Return an error of the allocator without the name of the claim and without the expression."""
    text = str(error)
    if isinstance(error, SelectorError):
        text = f"{error.where} fails on {error.device}: {error.problem.problem}"
    return re.sub(r"^claim [^ ,:]+[,:] ", "", text).replace("selector #", "selector ")


class ExplainError(DraError):
    """There is no such claim, pod or node."""


@dataclass(frozen=True, eq=False)
class ScheduledCluster:
    """A cluster after everything is scheduled, and what is calculated once for all claims and pods of it.

    outcome: the result of scheduling.
    """

    outcome: SchedulingOutcome

    @cached_property
    def state(self) -> ClusterState:
        """The cluster, with the pods that run."""
        state = ClusterState(self.outcome.snapshot)
        state.add_running_pods(map(pod_of, self.outcome.snapshot.pods))
        return state

    @cached_property
    def empty_problem(self) -> AllocationProblem:
        """The problem of allocating nothing, whose devices and selectors other problems share."""
        snapshot = self.outcome.snapshot
        features = SchedulerFeatures.of(snapshot.profile)
        return AllocationProblem((), snapshot.slices, snapshot.rules, snapshot.classes_by_name, features, (), ())

    @cached_property
    def _placements(self) -> Mapping[ObjectKey, PodPlacement]:
        """The first pod that uses each claim."""
        return {claim: placement for placement in reversed(self.outcome.pods) for claim in placement.claims}

    def target_of_claim(self, key: ObjectKey) -> ExplainTarget:
        """Return a claim and the pod that uses it; ExplainError if there is no such claim."""
        claims = self.outcome.snapshot.claims_by_key
        claim = claims.get(key)
        if claim is None:
            raise ExplainError(f"there is no claim {display_name(key)}; claims are: {_known_names(claims, key)}")
        if key not in self._placements:
            return ExplainTarget(self, None, None, (claim,))
        return self.target_of_pod(self._placements[key].pod)

    def target_of_pod(self, key: ObjectKey) -> ExplainTarget:
        """Return a pod and its claims; ExplainError if there is no such pod."""
        raw_pod, placement = self.outcome.snapshot.pods_by_key.get(key), self.outcome.pods_by_key.get(key)
        if raw_pod is None or placement is None:
            known = _known_names(self.outcome.pods_by_key, key)
            raise ExplainError(f"there is no pod {display_name(key)} that waits or runs; pods are: {known}")
        pod = pod_of(raw_pod)
        claims = self.outcome.snapshot.claims_by_key
        pod_claims = tuple(claims[claim] for claim in placement.claims if claim in claims)
        if placement.node is not None:
            return ExplainTarget(self, pod, placement, pod_claims)
        try:
            requirements = self.state.requirements_of(pod)
        except (UnschedulableError, AllocationError) as error:
            return ExplainTarget(self, pod, placement, pod_claims, unschedulable_reason=str(error))
        if requirements.extended_resources:
            behaviour = self.state.features.behaviour
            extended, _ = extended_resource_claim(pod, requirements.extended_resources, behaviour)
            pod_claims = (*pod_claims, extended)
        return ExplainTarget(self, pod, placement, pod_claims, requirements)


@dataclass(frozen=True)
class ExplainTarget:
    """A claim or a pod to explain, in the cluster after scheduling.

    cluster: the cluster.
    pod: the pod; None for a claim that no pod uses.
    placement: where the pod runs.
    claims: the claims to explain, in the order of the pod.
    requirements: what a pod that waits needs.
    unschedulable_reason: why no node can ever meet that; empty if one may.
    """

    cluster: ScheduledCluster
    pod: Pod | None
    placement: PodPlacement | None
    claims: tuple[JSON, ...]
    requirements: PodRequirements | None = None
    unschedulable_reason: str = ""

    @property
    def waits(self) -> bool:
        """Whether it is a pod that has no node."""
        return self.placement is not None and self.placement.node is None

    @property
    def snapshot(self) -> Snapshot:
        """The cluster after scheduling."""
        return self.cluster.outcome.snapshot

    @cached_property
    def equality(self) -> str:
        """Text that is equal for pods, and for claims without a pod, of which the same is true on every node."""
        if self.requirements is not None:
            return self.requirements.equivalence_key
        specs = [claim.get("spec") for claim in self.claims]
        if self.pod is None:
            return json.dumps(specs)
        spec = self.pod.spec
        return json.dumps([specs, spec.node_selector, spec.affinity.to_json(), spec.tolerations])

    def problem(self, claims: Sequence[JSON], nodes: Sequence[JSON]) -> AllocationProblem:
        """Return the problem of allocating these claims together while all others keep their devices."""
        keys = {object_key(claim) for claim in claims}
        others = (claim for claim in self.snapshot.claims if object_key(claim) not in keys)
        allocated, unallocated = tuple(filter(claim_allocation, others)), tuple(map(deallocated, claims))
        return self.cluster.empty_problem.with_changes(
            nodes=tuple(nodes), claims=unallocated, allocated_claims=allocated
        )

    def rejections(self, nodes: Sequence[JSON]) -> Mapping[str, str]:
        """Return why nodes reject the pod even if all devices are free, by name of the node."""
        if self.pod is None or not self.waits:
            return {}
        reasons: dict[str, str] = {}
        state = self.cluster.state
        for node in nodes:
            name, free = node["metadata"]["name"], state.free_resources
            if self.requirements is None:
                reasons[name] = rejection_reason(self.pod, node)
            elif rejection := device_independent_rejection(self.requirements, node, free, state.features):
                reasons[name] = rejection.reason
        return {name: reason for name, reason in reasons.items() if reason}


def select_nodes(snapshot: Snapshot, name: str | None) -> tuple[JSON, ...]:
    """Return all nodes, or the one with this name; ExplainError if there is none."""
    if name is None:
        return snapshot.nodes
    if name not in snapshot.nodes_by_name:
        raise ExplainError(f"there is no node {name}; nodes are: {', '.join(snapshot.nodes_by_name) or 'none'}")
    return (snapshot.nodes_by_name[name],)


def _known_names(keys: Mapping[ObjectKey, object], wanted: ObjectKey, limit: int = 12) -> str:
    """Return the first names, and the one that is most like the wanted one, also in another namespace."""
    names = [display_name(key) for key in keys]
    elsewhere = next((display_name(key) for key in keys if key[1] == wanted[1]), display_name(wanted))
    return (shortened(names, limit) or "none") + did_you_mean(elsewhere, names)
