"""What the claim controller does: make claims for pods from templates, and release claims of pods that have ended.

Source: controller/resourceclaim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.core_v1 import Pod, PodResourceClaim, pod_of
from dra_sdk.tools.scheduling.cluster.pod_groups import (
    CLAIMS_GATE,
    PodGroup,
    group_consumer,
    group_key,
    is_group_of,
    is_owner,
    is_shared,
)
from dra_sdk.tools.scheduling.cluster.snapshot import (
    ObjectKey,
    Snapshot,
    is_generated_uid,
    object_key,
)

if TYPE_CHECKING:
    pass

POD_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
EXTENDED_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
MAX_CONSUMERS: Final = 256
"""The most entries of `status.reservedFor`."""
_FINISHED: Final = {"Succeeded", "Failed"}


def is_finished(pod: Pod) -> bool:
    """Return whether the pod uses nothing any more: it has ended, or was deleted before it had a node."""
    deleted = pod.metadata.deletion_timestamp is not None and not pod.spec.node_name
    return deleted or pod.status.phase in _FINISHED


def owner_uids(claim: JSON) -> set[Any]:
    """Return the UIDs of the pods or others for which the claim was made."""
    return {owner.get("uid") for owner in claim["metadata"].get("ownerReferences") or () if owner.get("controller")}


def claim_allocation(claim: JSON) -> JSON | None:
    """Return `status.allocation`, None if the claim is not allocated."""
    allocation: JSON | None = (claim.get("status") or {}).get("allocation")
    return allocation


def claim_results(claim: JSON) -> list[JSON]:
    """Return the allocated devices, `status.allocation.devices.results`."""
    return list(((claim_allocation(claim) or {}).get("devices") or {}).get("results") or ())


def claim_consumers(claim: JSON) -> list[JSON]:
    """Return `status.reservedFor`."""
    return list((claim.get("status") or {}).get("reservedFor") or ())


def is_reserved_for(claim: JSON, pod: Pod) -> bool:
    """Return whether a claim is reserved for a pod or for its PodGroup."""
    consumers = claim_consumers(claim)
    return any(consumer.get("uid") == pod.metadata.uid or is_group_of(consumer, pod) for consumer in consumers)


def is_made_for(claim: JSON, pod: Pod) -> bool:
    """Return whether a claim from a template was made for a pod or for its PodGroup."""
    owners = [owner for owner in claim["metadata"].get("ownerReferences") or () if owner.get("controller")]
    return any(owner.get("uid") == pod.metadata.uid or is_owner(owner, pod) for owner in owners)


def consumer_uids(claim: JSON) -> set[Any]:
    """Return the UIDs in `status.reservedFor`."""
    return {consumer.get("uid") for consumer in claim_consumers(claim)}


def claim_key(pod: Pod, entry: PodResourceClaim) -> ObjectKey | None:
    """Return the claim behind an entry of `spec.resourceClaims`, None if no claim is needed.

    LookupError if the claim does not exist yet. Source: k8s.io/dynamic-resource-allocation, resourceclaim.Name.
    """
    if entry.resource_claim_name:
        return pod.metadata.namespace, entry.resource_claim_name
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return (pod.metadata.namespace, status.resource_claim_name) if status.resource_claim_name else None
    raise LookupError(f"template {entry.resource_claim_template_name} does not exist")


def used_claims(pod: Pod) -> Iterator[ObjectKey]:
    """Yield the claims of a pod whose names are known, the one for its extended resources last."""
    for entry in pod.spec.resource_claims:
        try:
            key = claim_key(pod, entry)
        except LookupError:
            continue
        if key is not None:
            yield key
    if extended := pod.status.extended_resource_claim_status:
        yield pod.metadata.namespace, extended.resource_claim_name


def with_current_reservations(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with claims reserved for the pods that run with them, and for none that has ended.

    A claim that loses its last reservation is deallocated if it has the scheduler's finalizer, and removed if it was
    made for a pod that has ended. Reservations of pods that are not in the snapshot stay, as it may lack them.
    """
    pods = {key: pod_of(obj) for key, obj in snapshot.pods_by_key.items()}
    claims, groups = dict(snapshot.claims_by_key), groups_of(snapshot)
    for pod in pods.values():
        if pod.spec.node_name and not is_finished(pod):
            shared = shared_claims(pod, groups.get(group_key(pod)))
            claims |= {key: _reserved(claims[key], pod, shared.get(key)) for key in used_claims(pod) if key in claims}
    released = [left for claim in claims.values() if (left := _released(claim, pods)) is not None]
    return replace(snapshot, claims=tuple(released))


def groups_of(snapshot: Snapshot) -> dict[ObjectKey, PodGroup]:
    """Return the PodGroups; without the feature gate of their claims, they have none."""
    groups = {object_key(obj): PodGroup.model_validate(obj) for obj in snapshot.pod_groups}
    for group in () if snapshot.profile.enabled(CLAIMS_GATE) else groups.values():
        group.spec.resource_claims = []
    return groups


def shared_claims(pod: Pod, group: PodGroup | None) -> dict[ObjectKey, PodGroup]:
    """Return the claims of a pod that are its group's, with the group."""
    shared: dict[ObjectKey, PodGroup] = {}
    for entry in pod.spec.resource_claims if group is not None else ():
        with suppress(LookupError):
            if group is not None and is_shared(entry, group) and (key := claim_key(pod, entry)):
                shared[key] = group
    return shared


def _reserved(claim: JSON, pod: Pod, group: PodGroup | None) -> JSON:
    """Return the claim reserved for a pod that has a node, or for its group, if it is allocated and has room for it."""
    consumers = claim_consumers(claim)
    if claim_allocation(claim) is None or len(consumers) >= MAX_CONSUMERS or is_reserved_for(claim, pod):
        return claim
    return with_status(claim, reservedFor=[*consumers, pod_consumer(pod) if group is None else group_consumer(group)])


def _released(claim: JSON, pods: Mapping[ObjectKey, Pod]) -> JSON | None:
    """Return the claim without reservations of pods that have ended; None if it is removed, too."""
    metadata, consumers = claim["metadata"], claim_consumers(claim)
    namespace = object_key(claim)[0]
    kept = [consumer for consumer in consumers if not (is_pod(consumer) and _has_ended(consumer, namespace, pods))]
    if len(kept) < len(consumers):
        claim = with_status(claim, reservedFor=kept or None)
    if kept:
        return claim
    has_finalizer = FINALIZER in (metadata.get("finalizers") or ())
    if has_finalizer and (consumers or metadata.get("deletionTimestamp")):
        claim = deallocated(claim)
    owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    unneeded = any(owner.get("kind") == "Pod" and _has_ended(owner, namespace, pods) for owner in owners)
    is_deleted = unneeded or bool(metadata.get("deletionTimestamp"))
    return None if is_deleted and not claim["metadata"].get("finalizers") else claim


def is_pod(consumer: JSON) -> bool:
    """Return whether an entry of `status.reservedFor` is a pod."""
    return consumer.get("resource") == "pods" and not consumer.get("apiGroup")


def _has_ended(reference: JSON, namespace: str, pods: Mapping[ObjectKey, Pod]) -> bool:
    """Return whether a pod that is referred to has ended, or another one has its name."""
    pod = pods.get((namespace, str(reference.get("name"))))
    if pod is None:
        return False
    uid = pod.metadata.uid
    return is_finished(pod) or (uid != reference.get("uid") and not is_generated_uid(uid))


def pod_consumer(pod: Pod) -> JSON:
    """Return the pod as an entry of `status.reservedFor`."""
    return {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}


def with_status(obj: JSON, **changes: Any) -> JSON:
    """Return the object with other fields in `status`; None removes a field."""
    status = {**(obj.get("status") or {}), **changes}
    return obj | {"status": {name: value for name, value in status.items() if value is not None}}


def without_consumers(claim: JSON, uids: Iterable[str]) -> JSON:
    """Return the claim without these consumers, and deallocated if they were the last ones."""
    removed = set(uids)
    before = claim_consumers(claim)
    kept = [consumer for consumer in before if consumer.get("uid") not in removed]
    if len(kept) == len(before):
        return claim
    return with_status(claim, reservedFor=kept) if kept else deallocated(claim)


def deallocated(claim: JSON) -> JSON:
    """Return the claim as it was before it was allocated."""
    metadata = dict(claim["metadata"])
    if kept := [finalizer for finalizer in metadata.pop("finalizers", ()) if finalizer != FINALIZER]:
        metadata["finalizers"] = kept
    return with_status(claim | {"metadata": metadata}, allocation=None, reservedFor=None, devices=None)


def with_recreated_pods(snapshot: Snapshot, pods: Iterable[Pod]) -> Snapshot:
    """Return the snapshot as if these pods had been deleted and created again, as by a Deployment or Job.

    Claims that were made for them are removed, and claims that no other pod uses are deallocated.
    """
    removed = {pod.metadata.uid: pod for pod in pods}
    if not removed:
        return snapshot
    claims = [without_consumers(claim, removed) for claim in snapshot.claims if not owner_uids(claim) & removed.keys()]
    new = [_recreated(pod) if pod["metadata"]["uid"] in removed else pod for pod in snapshot.pods]
    return replace(snapshot, claims=tuple(claims), pods=tuple(new))


def without_hypothetical_allocations(snapshot: Snapshot, keys: Iterable[ObjectKey]) -> Snapshot:
    """Return the snapshot with these claims, which no pod uses, deallocated."""
    removed = set(keys)
    claims = tuple(deallocated(claim) if object_key(claim) in removed else claim for claim in snapshot.claims)
    kept = {key: node for key, node in snapshot.hypothetical.items() if key not in removed}
    return replace(snapshot, claims=claims, hypothetical=kept)


def _recreated(pod: JSON) -> JSON:
    spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
    return {name: value for name, value in pod.items() if name != "status"} | {"spec": spec}
