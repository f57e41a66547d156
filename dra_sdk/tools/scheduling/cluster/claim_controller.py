"""What the claim controller does: make claims for pods from templates, and release claims of pods that have ended.

Source: controller/resourceclaim.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.core_v1 import Pod, PodResourceClaim, pod_of
from dra_sdk.tools.scheduling.cluster.snapshot import (
    ObjectKey,
    Snapshot,
    claim_name_base,
    generated_name,
    generated_uid,
    is_generated_uid,
    object_key,
    unused_name,
)

if TYPE_CHECKING:
    from dra_sdk.tools.scheduling.cluster.quotas import QuotaAdmission

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
    claims = dict(snapshot.claims_by_key)
    for pod in pods.values():
        if pod.spec.node_name and not is_finished(pod):
            claims |= {key: _reserved(claims[key], pod) for key in used_claims(pod) if key in claims}
    released = [left for claim in claims.values() if (left := _released(claim, pods)) is not None]
    return replace(snapshot, claims=tuple(released))


def _reserved(claim: JSON, pod: Pod) -> JSON:
    """Return the claim reserved for a pod that has a node, if it is allocated and has room for it."""
    consumers = claim_consumers(claim)
    if claim_allocation(claim) is None or len(consumers) >= MAX_CONSUMERS or pod.metadata.uid in consumer_uids(claim):
        return claim
    return with_status(claim, reservedFor=[*consumers, pod_consumer(pod)])


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


def refusal_key(pod: Pod, entry: str) -> str:
    """Return the key in `QuotaAdmission.refusals` of a claim that cannot be made for an entry of a pod."""
    return f"{pod.metadata.uid}/{entry}"


def with_generated_claims(snapshot: Snapshot, admission: QuotaAdmission | None = None) -> Snapshot:
    """Return the snapshot with a claim for each use of a template; pods whose template is missing do not change.

    admission: what quotas allow; it gets the refusals of claims. None: there are no quotas.
    """
    refusals = {} if admission is None else admission.refusals
    changed: list[JSON] = []
    owned = dict(_generated_claims(snapshot))
    known_claims = set(snapshot.claims_by_key)
    for obj in snapshot.pods:
        pod = pod_of(obj)
        if is_finished(pod) or not pod.spec.resource_claims or pod.metadata.uid in refusals:
            continue
        known = {status.name for status in pod.status.resource_claim_statuses}
        statuses = list((obj.get("status") or {}).get("resourceClaimStatuses") or ())
        for entry in pod.spec.resource_claims:
            if not entry.resource_claim_template_name or entry.name in known:
                continue
            claim = owned.get((pod.metadata.uid, entry.name))
            if claim is None:
                claim = _generate_claim(snapshot, pod, entry, known_claims)
                if claim is not None and admission is not None and (reason := admission.admit(claim)):
                    refusals[refusal_key(pod, entry.name)] = reason
                    continue
            if claim is not None:
                known_claims.add(object_key(claim))
                changed.append(claim)
                statuses.append({"name": entry.name, "resourceClaimName": claim["metadata"]["name"]})
        if len(statuses) > len(known):
            changed.append(with_status(obj, resourceClaimStatuses=statuses))
    return snapshot.with_objects(changed) if changed else snapshot


def _generated_claims(snapshot: Snapshot) -> Iterator[tuple[tuple[str, str], JSON]]:
    """Yield the claims that were made for pods, by the pod's UID and the name of the entry."""
    for claim in snapshot.claims:
        entry_name = (claim["metadata"].get("annotations") or {}).get(POD_CLAIM_ANNOTATION)
        for owner in (claim["metadata"].get("ownerReferences") or ()) if entry_name else ():
            if owner.get("controller"):
                yield (str(owner.get("uid")), str(entry_name)), claim


def _generate_claim(snapshot: Snapshot, pod: Pod, entry: PodResourceClaim, known: Container[ObjectKey]) -> JSON | None:
    namespace = pod.metadata.namespace
    template = snapshot.templates_by_key.get((namespace, entry.resource_claim_template_name))
    if template is None:
        return None
    base = claim_name_base(pod.metadata.name, entry.name)
    metadata = template["spec"].get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), POD_CLAIM_ANNOTATION: entry.name}
    claim = claim_made_for(pod, base, annotations, template["spec"].get("spec") or {}, entry.name)
    if metadata.get("labels"):
        claim["metadata"]["labels"] = metadata["labels"]
    return with_unused_name(claim, known)


def claim_made_for(pod: Pod, base: str, annotations: Mapping[str, str], spec: JSON, *reasons: str) -> JSON:
    """Return a new claim that belongs to a pod; its name begins with `base` and depends on the pod and `reasons`."""
    namespace, uid = pod.metadata.namespace, pod.metadata.uid
    name = generated_name(base, namespace, uid, *reasons)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": uid, "controller": True}
    metadata = {
        "name": name,
        "generateName": base,
        "namespace": namespace,
        "uid": generated_uid("ResourceClaim", (namespace, name), uid),
        "annotations": annotations,
        "ownerReferences": [owner],
    }
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


def with_unused_name(claim: JSON, known: Container[ObjectKey]) -> JSON:
    """Return a new claim that has `generateName`, under another name if one of the `known` claims has its name."""
    metadata, (namespace, name) = claim["metadata"], object_key(claim)
    if (namespace, name) not in known:
        return claim
    name = unused_name(metadata["generateName"], lambda other: (namespace, other) in known, namespace, metadata["uid"])
    uid = generated_uid("ResourceClaim", (namespace, name), metadata["uid"])
    return claim | {"metadata": metadata | {"name": name, "uid": uid}}


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
