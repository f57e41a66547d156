"""The cluster while it is scheduled: which claims are allocated and reserved, where pods run, what nodes have left."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import AllocatedState, Inventory, SchedulerFeatures
from dra_sdk.tools.scheduling.cluster.claim_controller import (
    FINALIZER,
    claim_allocation,
    claim_consumers,
    consumer_uids,
    deallocated,
    groups_of,
    is_finished,
    pod_consumer,
    shared_claims,
    used_claims,
    with_recreated_pods,
    with_status,
)
from dra_sdk.tools.scheduling.cluster.core_v1 import Pod, pod_of
from dra_sdk.tools.scheduling.cluster.extended_resources import classes_by_resource
from dra_sdk.tools.scheduling.cluster.generated_claims import with_generated_claims, with_unused_name
from dra_sdk.tools.scheduling.cluster.node_filter import EXTENDED_RESOURCES, FreeResources, NodeFit
from dra_sdk.tools.scheduling.cluster.pod_groups import group_consumer, group_key
from dra_sdk.tools.scheduling.cluster.pod_requirements import (
    PodRequirements,
    ResourceAmounts,
    pod_requests,
    requirements_of,
)
from dra_sdk.tools.scheduling.cluster.quotas import QuotaAdmission
from dra_sdk.tools.scheduling.cluster.snapshot import ObjectKey, Snapshot, object_key


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod on its node, and what it requests there."""

    pod: Pod
    requests: ResourceAmounts

    @property
    def priority(self) -> int:
        """Its priority."""
        return self.pod.spec.effective_priority


class ClusterState:
    """Starts as a snapshot with a claim for each use of a template, and records every change.

    admission: what quotas allow, and what they refuse.
    features: what the scheduler can do.
    nodes: the nodes by name.
    pod_groups: the PodGroups, by namespace and name.
    claims, pods: the objects by namespace and name.
    hypothetical: see `Snapshot.hypothetical`.
    allocated: the devices in use.
    free_resources: the resources that nodes have left.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.admission = QuotaAdmission(snapshot)
        self._snapshot = snapshot = with_generated_claims(snapshot, self.admission)
        self.features = SchedulerFeatures.of(snapshot.profile)
        self.nodes = snapshot.nodes_by_name
        self.pod_groups = groups_of(snapshot)
        self.claims = dict(snapshot.claims_by_key)
        self.pods = dict(snapshot.pods_by_key)
        self.hypothetical = dict(snapshot.hypothetical)
        self.allocated = AllocatedState.of(snapshot.claims)
        self.free_resources = FreeResources(snapshot.nodes, self.features.behaviour)
        self._running: dict[str, dict[ObjectKey, BoundPod]] = {}

    def snapshot(self) -> Snapshot:
        """Return the snapshot with all changes."""
        return replace(
            self._snapshot,
            claims=tuple(self.claims.values()),
            pods=tuple(self.pods.values()),
            hypothetical=self.hypothetical,
        )

    @cached_property
    def inventory(self) -> Inventory:
        """The devices."""
        return Inventory(self._snapshot.slices, self.features, self._snapshot.rules)

    @cached_property
    def _classes_by_resource(self) -> dict[str, str]:
        features = self.features
        return classes_by_resource(self._snapshot.classes, features.behaviour) if features.extended_resources else {}

    def requirements_of(self, pod: Pod) -> PodRequirements:
        """Return what a pod needs now; UnschedulableError if no node could ever meet it."""
        classes, refusals = self._snapshot.classes_by_name, self.admission.refusals
        return requirements_of(pod, self.claims, classes, self._classes_by_resource, refusals)

    def add_running_pods(self, pods: Iterable[Pod]) -> None:
        """Add those of the pods that already run on a node."""
        for pod in pods:
            if pod.spec.node_name and not is_finished(pod):
                self._run(pod.spec.node_name, BoundPod(pod, pod_requests(pod)))

    def running_on(self, node: str) -> Collection[BoundPod]:
        """Return the pods on a node."""
        return self._running.get(node, {}).values()

    def evict(self, keys: Iterable[ObjectKey]) -> list[Pod]:
        """Remove pods from their nodes, as if deleted and created again; return them as they wait now.

        Claims that were made for them are made again, and claims that no other pod uses are deallocated.
        """
        removed = list(dict.fromkeys(keys))
        for pods in self._running.values():
            for key in [key for key in removed if key in pods]:
                freed = pods.pop(key)
                self.free_resources.remove_pod(self.pods[key]["spec"]["nodeName"], freed.requests)
        without = with_recreated_pods(self.snapshot(), (pod_of(self.pods[key]) for key in removed))
        self.admission = QuotaAdmission(without)
        after = with_generated_claims(without, self.admission)
        for key, claim in self.claims.items():
            left = after.claims_by_key.get(key)
            if claim_allocation(claim) is not None and (left is None or claim_allocation(left) is None):
                self.allocated.remove(claim)
        self.claims, self.pods = dict(after.claims_by_key), dict(after.pods_by_key)
        return [pod_of(self.pods[key]) for key in removed]

    def bind_refusal(self, fit: NodeFit) -> str:
        """Return why the API server refuses the claim for extended resources that a pod needs to be bound."""
        claim = fit.claims.get(EXTENDED_RESOURCES)
        return self.admission.admit(claim) if claim is not None else ""

    def bind(self, requirements: PodRequirements, fit: NodeFit) -> tuple[ObjectKey, ...]:
        """Bind a pod to a node and give it its devices; return the claims that it uses."""
        key = pod_key(requirements.pod)
        made = dict(fit.claims)
        if EXTENDED_RESOURCES in made:
            made[EXTENDED_RESOURCES] = with_unused_name(made[EXTENDED_RESOURCES], self.claims)
        shared = shared_claims(requirements.pod, self.pod_groups.get(group_key(requirements.pod)))
        for name, claim in {**requirements.allocated_claims, **made}.items():
            group = shared.get(object_key(claim))
            consumer = pod_consumer(requirements.pod) if group is None else group_consumer(group)
            self._reserve(claim, fit.allocations.get(name), consumer)
        as_devices = self.free_resources.without_device_plugin(fit.node, requirements.extended_resources)
        requests = {name: amount for name, amount in requirements.requests.items() if name not in as_devices}
        self._run(fit.node, BoundPod(requirements.pod, requests))
        pod = self.pods[key] | {"spec": self.pods[key]["spec"] | {"nodeName": fit.node}}
        if EXTENDED_RESOURCES in made:
            name = made[EXTENDED_RESOURCES]["metadata"]["name"]
            status = {"requestMappings": list(fit.mappings), "resourceClaimName": name}
            pod = with_status(pod, extendedResourceClaimStatus=status)
        self.pods[key] = pod
        return tuple(used_claims(pod_of(pod)))

    def unbind(self, keys: Iterable[ObjectKey], claims: dict[ObjectKey, JSON], pods: dict[ObjectKey, JSON]) -> None:
        """Undo the binding of pods, and what that did to claims; `claims` and `pods` are those from before."""
        for key in keys:
            node = self.pods[key]["spec"]["nodeName"]
            self.free_resources.remove_pod(node, self._running[node].pop(key).requests)
        for key, claim in self.claims.items():
            if claim_allocation(claim) is not None and claim_allocation(claims.get(key, {})) is None:
                self.allocated.remove(claim)
            if key not in claims:
                self.admission.release(claim)
        self.claims, self.pods = claims, pods

    def allocate_hypothetically(self, key: ObjectKey, node: str, allocation: JSON) -> None:
        """Allocate a claim that no pod uses, as if a pod on this node used it."""
        self._reserve(self.claims[key], allocation, None)
        self.hypothetical[key] = node

    def deallocate_unused(self, requirements: PodRequirements, names: Iterable[str], group: str = "") -> int:
        """Deallocate these claims of a pod unless others use them; return how many were deallocated.

        They can then be allocated again on a node where the pod can run. Source: plugin DynamicResources, PostFilter,
        and PodGroupPostFilter.

        group: the UID of the pod's group, if none of its pods runs, so that its claims are unused, too.
        """
        count = 0
        for key in (object_key(requirements.allocated_claims[name]) for name in names):
            claim = self.claims[key]
            if claim_allocation(claim) is not None and consumer_uids(claim) <= {requirements.pod.metadata.uid, group}:
                self.allocated.remove(claim)
                self.claims[key] = deallocated(claim)
                self.hypothetical.pop(key, None)
                count += 1
        return count

    def _run(self, node: str, running: BoundPod) -> None:
        self.free_resources.add_pod(node, running.requests)
        self._running.setdefault(node, {})[pod_key(running.pod)] = running

    def _reserve(self, claim: JSON, allocation: JSON | None, consumer: JSON | None) -> None:
        """Record a new allocation, and the consumer of the claim."""
        if allocation is not None:
            finalizers = dict.fromkeys([*claim["metadata"].get("finalizers", ()), FINALIZER])
            claim = claim | {"metadata": claim["metadata"] | {"finalizers": list(finalizers)}}
            claim = with_status(claim, allocation=allocation)
            self.allocated.add(claim)
        if consumer is not None and consumer not in claim_consumers(claim):
            claim = with_status(claim, reservedFor=[*claim_consumers(claim), consumer])
        self.claims[object_key(claim)] = claim

    def is_allocated(self, key: ObjectKey) -> bool:
        """Return whether a claim exists and is allocated."""
        return key in self.claims and claim_allocation(self.claims[key]) is not None


def pod_key(pod: Pod) -> ObjectKey:
    """Return namespace and name of a pod."""
    return pod.metadata.namespace, pod.metadata.name
