"""Whether a pod fits on a node, and what it would get there or why it does not fit.

Source: scheduler plugins NodeUnschedulable, TaintToleration, NodeAffinity, NodeResourcesFit and DynamicResources,
Filter.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.texts import counted
from dra_sdk.tools.scheduling.allocator import (
    OPTIONAL_NODE_OPERATIONS,
    AllocatedState,
    Allocator,
    InvalidPoolsError,
    SchedulerFeatures,
)
from dra_sdk.tools.scheduling.allocator.features import UP_TO_1_36, ReleaseBehaviour
from dra_sdk.tools.scheduling.allocator.node_selection import (
    declares_feature,
    matches_node_selector,
    named_nodes,
    node_name,
    requirement_text,
    unmet_requirement,
)
from dra_sdk.tools.scheduling.allocator.quantities import NANOS_PER_UNIT, parse_quantity
from dra_sdk.tools.scheduling.cluster.claim_controller import claim_allocation
from dra_sdk.tools.scheduling.cluster.core_v1 import Pod
from dra_sdk.tools.scheduling.cluster.extended_resources import extended_resource_claim
from dra_sdk.tools.scheduling.cluster.pod_requirements import (
    PodRequirements,
    ResourceAmounts,
    has_skipped_operations,
)
from dra_sdk.tools.scheduling.cluster.scheduling_outcome import NO_NODE_PREFIX
from dra_sdk.tools.scheduling.device_taints import taint_text, untolerated_taints

EXTENDED_RESOURCES: Final = "extended resources"
"""The name for the claim that the scheduler makes for extended resources."""
UNSCHEDULABLE_TAINT: Final[Mapping[str, str]] = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
"""The taint of a cordoned node."""
_PODS: Final = "pods"
_HUGE_PAGES: Final = "hugepages-"


class FreeResources:
    """The free resources of each node. A node without `status.allocatable` has enough CPU, memory and pods."""

    def __init__(self, nodes: Iterable[JSON], behaviour: ReleaseBehaviour = UP_TO_1_36) -> None:
        self._offers_none = behaviour.extended_resources_of_1_34
        self._allocatable = {node_name(node): _allocatable(node) for node in nodes}
        self._requested: dict[str, ResourceAmounts] = {}

    def has_device_plugin(self, node: str, resource: str) -> bool:
        """Return whether a device plugin offers an extended resource on the node."""
        amount = (self._allocatable.get(node) or {}).get(resource)
        return amount is not None if self._offers_none else bool(amount)

    def without_device_plugin(self, node: str, resources: Mapping[str, str]) -> dict[str, str]:
        """Return those of the extended resources (name → class) that no device plugin offers on the node."""
        return {name: cls for name, cls in resources.items() if not self.has_device_plugin(node, name)}

    def add_pod(self, node: str, requests: Mapping[str, Fraction]) -> None:
        """Add a pod that runs on the node."""
        used = self._requested.setdefault(node, defaultdict(Fraction))
        used[_PODS] += 1
        for name, amount in requests.items():
            used[name] += amount

    def remove_pod(self, node: str, requests: Mapping[str, Fraction]) -> None:
        """Remove a pod that was added with these requests."""
        used = self._requested[node]
        used[_PODS] -= 1
        for name, amount in requests.items():
            used[name] -= amount

    @contextmanager
    def restored(self, node: str) -> Iterator[None]:
        """At the end of the block, undo which pods were added to the node and removed from it."""
        before = dict(self._requested.get(node, {}))
        try:
            yield
        finally:
            self._requested[node] = defaultdict(Fraction, before)

    def missing_resources(self, node: str, requests: Mapping[str, Fraction], as_devices: Collection[str]) -> list[str]:
        """Return the resources of which a node has too little for a pod, except for those that it gets `as_devices`."""
        allocatable = self._allocatable.get(node)
        used: Mapping[str, Fraction] = self._requested.get(node, {})
        missing = []
        for name, amount in {_PODS: Fraction(1), **requests}.items():
            limit = None if allocatable is None else allocatable.get(name)
            if limit is None and ("/" in name or (name.startswith(_HUGE_PAGES) and allocatable is not None)):
                limit = Fraction(0)
            if name not in as_devices and limit is not None and used.get(name, 0) + amount > limit:
                missing.append(name)
        return missing


def _allocatable(node: JSON) -> ResourceAmounts | None:
    amounts = (node.get("status") or {}).get("allocatable")
    if amounts is None:
        return None
    return {name: Fraction(parse_quantity(amount).nano, NANOS_PER_UNIT) for name, amount in amounts.items()}


def node_taints(node: JSON) -> list[JSON]:
    """Return the taints of a node."""
    return (node.get("spec") or {}).get("taints") or []


def rejection_reason(pod: Pod, node: JSON) -> str:
    """Return why a node rejects a pod regardless of its claims; empty if it does not.

    The first of the plugins NodeUnschedulable, TaintToleration and NodeAffinity that rejects the node decides.
    AllocationError for an invalid node selector.
    """
    tolerations = pod.spec.tolerations
    is_cordoned = (node.get("spec") or {}).get("unschedulable")
    if is_cordoned and untolerated_taints([UNSCHEDULABLE_TAINT], tolerations):
        return "cordoned"
    if taints := untolerated_taints(node_taints(node), tolerations):
        return f"taint {taint_text(taints[0])} not tolerated"
    unmet = _unmet_selection(pod, node)
    return f"not selected by {unmet}" if unmet else ""


def _unmet_selection(pod: Pod, node: JSON) -> str:
    """Return what does not select a node: `nodeSelector zone=a`, `affinity zone In (a, b)`; empty if all does."""
    labels = node["metadata"].get("labels") or {}
    for key, value in pod.spec.node_selector.items():
        if labels.get(key) != value:
            return f"nodeSelector {key}={value}"
    required = pod.spec.required_nodes
    if required is None or matches_node_selector(required, node):
        return ""
    requirement = unmet_requirement(required, node)
    return f"affinity {requirement_text(requirement)}" if requirement else "affinity"


def required_node_names(pod: Pod) -> Collection[str] | None:
    """Return the names of the only nodes that the required affinity of a pod can match; None if it names none.

    Every other node rejects the pod, and none raises an error for its selector.
    """
    required = pod.spec.required_nodes
    return None if required is None else named_nodes(required)


@dataclass(frozen=True, slots=True)
class NodeFit:
    """What a pod gets on a node.

    node: the name of the node.
    claims: the claims to allocate, by the pod's name for them; that for extended resources is `extended resources`.
    allocations: the allocation of each of these claims.
    mappings: which request serves which extended resource of which container.
    """

    node: str
    claims: Mapping[str, JSON] = field(default_factory=dict)
    allocations: Mapping[str, JSON] = field(default_factory=dict)
    mappings: Sequence[JSON] = ()


@dataclass(frozen=True, slots=True)
class NodeRejection:
    """Why a pod does not fit on a node.

    reason: the reason; empty if devices are missing, see `NodeFilter.missing_devices`.
    unusable_claims: its allocated claims that cannot be used on this node.
    """

    reason: str = ""
    unusable_claims: Sequence[str] = ()


class NodeFilter:
    """Checks whether pods fit on nodes as they are now."""

    def __init__(self, allocator: Allocator, allocated: AllocatedState, free_resources: FreeResources) -> None:
        self._allocator, self._allocated, self._free_resources = allocator, allocated, free_resources

    def check(self, requirements: PodRequirements, node: JSON) -> NodeFit | NodeRejection:
        """Return what the pod gets on the node, or why it does not fit there.

        AllocationError if kube-scheduler would try no other node.
        """
        features = self._allocator.features
        if rejection := device_independent_rejection(requirements, node, self._free_resources, features):
            return rejection
        claims, mappings = self._claims_for(requirements, node)
        if not claims:
            return NodeFit(node_name(node))
        try:
            allocations = self._allocator.allocate(node, list(claims.values()), self._allocated)
        except InvalidPoolsError as error:
            return NodeRejection(str(error))
        if allocations is None:
            return NodeRejection()
        return NodeFit(node_name(node), claims, dict(zip(claims, allocations, strict=True)), mappings)

    def missing_devices(self, requirements: PodRequirements, node: JSON) -> str:
        """Return which claims cannot be allocated on a node that lacks devices.

        If each claim alone can be allocated, these are all of them together.
        """
        claims, _ = self._claims_for(requirements, node)
        single = [name for name, claim in claims.items() if len(claims) > 1 and not self._fits(claim, node)]
        names = single or list(claims)
        together = " together" if len(claims) > 1 and not single else ""
        claimed = [name for name in names if name != EXTENDED_RESOURCES]
        what = [_claim_names(claimed)] if claimed else []
        what += sorted(self._resources_as_devices(requirements, node)) if EXTENDED_RESOURCES in names else []
        return f"no devices for {' and '.join(what)}{together}"

    def _fits(self, claim: JSON, node: JSON) -> bool:
        return self._allocator.allocate(node, [claim], self._allocated) is not None

    def _resources_as_devices(self, requirements: PodRequirements, node: JSON) -> dict[str, str]:
        """Return the extended resources that the pod gets as devices on this node."""
        return self._free_resources.without_device_plugin(node_name(node), requirements.extended_resources)

    def _claims_for(self, requirements: PodRequirements, node: JSON) -> tuple[dict[str, JSON], Sequence[JSON]]:
        """Return the claims to allocate on this node by the pod's names for them, and which request serves what.

        The latter are the mappings of the claim for extended resources.
        """
        resources = self._resources_as_devices(requirements, node)
        if not resources:
            return requirements.unallocated_claims, ()
        extended, mappings = extended_resource_claim(requirements.pod, resources, self._allocator.features.behaviour)
        return {**requirements.unallocated_claims, EXTENDED_RESOURCES: extended}, mappings


def device_independent_rejection(
    requirements: PodRequirements, node: JSON, free_resources: FreeResources, features: SchedulerFeatures
) -> NodeRejection | None:
    """Return why a node rejects a pod even if all devices are free; None if it does not."""
    if reason := rejection_reason(requirements.pod, node):
        return NodeRejection(reason)
    name = node_name(node)
    as_devices = free_resources.without_device_plugin(name, requirements.extended_resources)
    if missing := free_resources.missing_resources(name, requirements.requests, as_devices):
        return NodeRejection(f"not enough {', '.join(missing)}")
    if requirements.extended_resources and not as_devices and requirements.unallocated_claims:
        return NodeRejection(_NO_MAPPINGS.format(", ".join(requirements.extended_resources)))
    node_skips_operations = not features.behaviour.knows_1_37_fields or declares_feature(node, OPTIONAL_NODE_OPERATIONS)
    if unusable := list(_unusable_claims(requirements, node, node_skips_operations=node_skips_operations)):
        return NodeRejection(f"{_claim_names(unusable)} allocated elsewhere", unusable)
    return None


def _unusable_claims(requirements: PodRequirements, node: JSON, *, node_skips_operations: bool) -> Iterator[str]:
    """Yield the allocated claims whose devices this node cannot use."""
    for name, claim in requirements.allocated_claims.items():
        selector = (claim_allocation(claim) or {}).get("nodeSelector")
        if (selector is not None and not matches_node_selector(selector, node)) or (
            has_skipped_operations(claim) and not node_skips_operations
        ):
            yield name


def _claim_names(names: Sequence[str]) -> str:
    """Return `claims a, b`."""
    return f"claim{'s' if len(names) > 1 else ''} {', '.join(names)}"


_NO_MAPPINGS: Final = (
    "kube-scheduler fails in PreBind for a claim beside {}, "
    "which a device plugin offers here and a DeviceClass provides"  # "nil or empty request mappings", each time
)


@dataclass(slots=True)
class NodePass:
    """One pass over nodes for a pod.

    names: the nodes that it was for; empty for all nodes.
    rejected: the nodes that do not fit.
    last: the node at which it ended before the last one; empty if it did not.
    """

    names: Collection[str] = ()
    rejected: dict[str, NodeRejection] = field(default_factory=dict)
    last: str = ""


class CandidateNodes:
    """The nodes that may still fit for pods with the same requirements, and why the others do not.

    While nothing is deallocated, nodes only fill up: a node that does not fit for one pod does not fit for the next pod
    with the same requirements. So each node is rejected once for each kind of pod, not once for each pod.
    `unusable_claims` has the allocated claims that some node cannot use.
    """

    def __init__(self, nodes: Mapping[str, JSON]) -> None:
        self._all = nodes
        self._left: dict[str, JSON] | None = None
        self._deferred: list[NodePass] = []
        self._without_devices: list[JSON] = []
        self._reasons: Counter[str] = Counter()
        self.unusable_claims: dict[str, None] = {}

    def __iter__(self) -> Iterator[JSON]:
        return iter(self._candidates.values())

    @property
    def _candidates(self) -> Mapping[str, JSON]:
        return self._all if self._left is None else self._left

    def named(self, names: Collection[str]) -> list[JSON]:
        """Return those of these nodes that may still fit, in the order of all nodes."""
        left = self._candidates
        rejected = {name for attempt in self._deferred for name in attempt.rejected}
        kept = [name for name in names if name in left and name not in rejected]
        return [left[name] for name in (kept if len(kept) < 2 else filter(kept.__contains__, left))]  # noqa: PLR2004

    def defer(self, attempt: NodePass) -> None:
        """Keep what a pass over some nodes by name found, and which other nodes it left out, until that matters."""
        before = self._deferred[-1] if self._deferred else None
        # After an equal pass that came as far, one that rejects nothing itself would have rejected nothing more.
        if before is None or attempt.rejected or before.last not in {"", attempt.last}:
            self._deferred.append(attempt)

    def catch_up(self, check: Callable[[JSON], NodeFit | NodeRejection]) -> None:
        """Reject what passes over all nodes in place of the deferred ones would have rejected, in the same order.

        check: asks a node that such a pass left out.
        """
        for attempt in self._deferred:
            for name, node in list(self._candidates.items()):
                if name == attempt.last:
                    break
                rejection: NodeFit | NodeRejection | None = attempt.rejected.get(name)
                if rejection is None and name not in attempt.names:
                    rejection = check(node)
                if isinstance(rejection, NodeRejection):
                    self.reject(name, rejection)
        self._deferred.clear()

    def reject(self, name: str, rejection: NodeRejection) -> None:
        """Reject a node; not while nodes are iterated over."""
        if self._left is None:
            self._left = dict(self._all)  # only now: pods of a DaemonSet are of as many kinds as there are nodes
        node = self._left.pop(name)
        self.unusable_claims.update(dict.fromkeys(rejection.unusable_claims))
        if rejection.reason:
            self._reasons[rejection.reason] += 1
        else:
            self._without_devices.append(node)

    def summary(self, requirements: PodRequirements, node_filter: NodeFilter) -> str:
        """Return why no node is left: `0 of 3 nodes: no devices for claim gpu on 2 nodes; cordoned on 1 node`."""
        self._reasons.update(node_filter.missing_devices(requirements, node) for node in self._without_devices)
        self._without_devices.clear()
        if not self._reasons:
            return "there are no nodes"
        reasons = [f"{reason} on {counted(number, 'node')}" for reason, number in self._reasons.most_common()]
        return f"{NO_NODE_PREFIX}{self._reasons.total()} nodes: {'; '.join(reasons)}"
