"""What the claim controller does: claims for pods from templates, and the end of those whose pod is gone.

Source: controller/resourceclaim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.core import Pod, PodResourceClaim
from dra_sdk.tools.scheduling.cluster.names import Key, claim_base, generated_name, generated_uid, key_of
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot

POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
EXTENDED_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
_FINISHED: Final = {"Succeeded", "Failed"}


def is_finished(pod: Pod) -> bool:
    """Whether the pod has ended, so that it uses nothing any more."""
    return pod.status.phase in _FINISHED


def is_owned(claim: JSON, pod: Pod) -> bool:
    """Whether the claim was made for this very pod."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(each.get("controller") and each.get("uid") == pod.metadata.uid for each in owners)


def claim_key(pod: Pod, entry: PodResourceClaim) -> Key | None:
    """The claim behind an entry of `spec.resourceClaims`, None where none was needed; LookupError if none is made yet.

    Source: k8s.io/dynamic-resource-allocation, resourceclaim.Name.
    """
    if entry.resource_claim_name:
        return pod.metadata.namespace, entry.resource_claim_name
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return (pod.metadata.namespace, status.resource_claim_name) if status.resource_claim_name else None
    raise LookupError(f"template {entry.resource_claim_template_name} does not exist")


def used_claims(pod: Pod) -> Iterator[Key]:
    """The claims of a pod that have a name already, that for its extended resources last."""
    for entry in pod.spec.resource_claims:
        try:
            key = claim_key(pod, entry)
        except LookupError:
            continue
        if key is not None:
            yield key
    if extended := pod.status.extended_resource_claim_status:
        yield pod.metadata.namespace, extended.resource_claim_name


def with_generated_claims(snapshot: Snapshot) -> Snapshot:
    """With a claim for each use of a template that has none yet; pods whose template is missing stay as they are."""
    made: list[JSON] = []
    owned = dict(_owned(snapshot))
    for obj in snapshot.pods:
        pod = Pod.model_validate(obj)
        if is_finished(pod) or not pod.spec.resource_claims:
            continue
        known = {status.name for status in pod.status.resource_claim_statuses}
        statuses = list((obj.get("status") or {}).get("resourceClaimStatuses") or ())
        for entry in pod.spec.resource_claims:
            if not entry.resource_claim_template_name or entry.name in known:
                continue
            claim = owned.get((pod.metadata.uid, entry.name)) or _generated(snapshot, pod, entry)
            if claim is not None:
                made.append(claim)
                statuses.append({"name": entry.name, "resourceClaimName": claim["metadata"]["name"]})
        if len(statuses) > len(known):
            made.append(with_status(obj, resourceClaimStatuses=statuses))
    return snapshot.having(made) if made else snapshot


def _owned(snapshot: Snapshot) -> Iterator[tuple[tuple[str, str], JSON]]:
    """The claims that were made for pods, by the pod's UID and the name of the entry."""
    for claim in snapshot.claims:
        noted = (claim["metadata"].get("annotations") or {}).get(POD_CLAIM)
        for owner in (claim["metadata"].get("ownerReferences") or ()) if noted else ():
            if owner.get("controller"):
                yield (str(owner.get("uid")), str(noted)), claim


def _generated(snapshot: Snapshot, pod: Pod, entry: PodResourceClaim) -> JSON | None:
    namespace = pod.metadata.namespace
    template = snapshot.templates_by_key.get((namespace, entry.resource_claim_template_name))
    if template is None:
        return None
    base = claim_base(pod.metadata.name, entry.name)
    name = generated_name(base, namespace, pod.metadata.uid, entry.name)
    given = template["spec"].get("metadata") or {}
    metadata: JSON = {
        "name": name,
        "generateName": base,
        "namespace": namespace,
        "uid": generated_uid("ResourceClaim", (namespace, name), pod.metadata.uid),
        "annotations": {**(given.get("annotations") or {}), POD_CLAIM: entry.name},
        "ownerReferences": [owner_reference(pod)],
    }
    if given.get("labels"):
        metadata["labels"] = given["labels"]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": template["spec"].get("spec") or {},
    }


def owner_reference(pod: Pod) -> JSON:
    """What makes a claim the pod's own."""
    return {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid, "controller": True}


def consumer(pod: Pod) -> JSON:
    """The pod as an entry of `status.reservedFor`."""
    return {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}


def with_status(obj: JSON, **changes: Any) -> JSON:
    """The object with other fields in `status`; None takes one away."""
    status = {**(obj.get("status") or {}), **changes}
    return obj | {"status": {name: value for name, value in status.items() if value is not None}}


def released(claim: JSON, uids: Iterable[str]) -> JSON:
    """The claim without these consumers; without its devices too, if they were the last ones."""
    gone = set(uids)
    before = (claim.get("status") or {}).get("reservedFor") or []
    left = [each for each in before if each.get("uid") not in gone]
    if len(left) == len(before):
        return claim
    return with_status(claim, reservedFor=left) if left else deallocated(claim)


def deallocated(claim: JSON) -> JSON:
    """The claim as it was before it was allocated."""
    metadata = dict(claim["metadata"])
    if left := [each for each in metadata.pop("finalizers", ()) if each != FINALIZER]:
        metadata["finalizers"] = left
    return with_status(claim | {"metadata": metadata}, allocation=None, reservedFor=None, devices=None)


def without_pods(snapshot: Snapshot, pods: Iterable[Pod]) -> Snapshot:
    """As if the pods had been deleted and at once created again, as a Deployment or Job does it.

    Claims that were made for them are gone, and those that nobody else uses have no devices any more.
    """
    gone = {pod.metadata.uid: pod for pod in pods}
    if not gone:
        return snapshot
    claims = []
    for claim in snapshot.claims:
        owners = {each.get("uid") for each in claim["metadata"].get("ownerReferences") or () if each.get("controller")}
        if not owners & set(gone):
            claims.append(released(claim, gone))
    new = [_unbound(each) if each["metadata"]["uid"] in gone else each for each in snapshot.pods]
    return replace(snapshot, claims=tuple(claims), pods=tuple(new))


def without_imagined(snapshot: Snapshot, keys: Iterable[Key]) -> Snapshot:
    """Without the devices of claims that no pod uses, so that they are allocated anew."""
    gone = set(keys)
    claims = tuple(deallocated(each) if key_of(each) in gone else each for each in snapshot.claims)
    left = {key: node for key, node in snapshot.imagined.items() if key not in gone}
    return replace(snapshot, claims=claims, imagined=left)


def _unbound(pod: JSON) -> JSON:
    spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
    return {name: value for name, value in pod.items() if name != "status"} | {"spec": spec}
