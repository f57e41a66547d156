"""The claims that the claim controller makes from templates, for pods and for PodGroups.

Source: controller/resourceclaim.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.claim_controller import (
    POD_CLAIM_ANNOTATION,
    groups_of,
    is_finished,
    with_status,
)
from dra_sdk.tools.scheduling.cluster.core_v1 import Pod, PodResourceClaim, pod_of
from dra_sdk.tools.scheduling.cluster.pod_groups import PodGroup, group_key, is_shared
from dra_sdk.tools.scheduling.cluster.snapshot import (
    ObjectKey,
    Snapshot,
    claim_name_base,
    generated_name,
    generated_uid,
    object_key,
    unused_name,
)

if TYPE_CHECKING:
    from dra_sdk.tools.scheduling.cluster.quotas import QuotaAdmission


def refusal_key(owner: Pod | PodGroup, entry: str) -> str:
    """Return the key in `QuotaAdmission.refusals` of a claim that cannot be made for an entry of a pod or PodGroup."""
    return f"{owner.metadata.uid}/{entry}"


def with_generated_claims(snapshot: Snapshot, admission: QuotaAdmission | None = None) -> Snapshot:
    """Return the snapshot with a claim for each use of a template; owners whose template is missing do not change.

    admission: what quotas allow; it gets the refusals of claims. None: there are no quotas.
    """
    maker, groups = _ClaimMaker(snapshot, admission), groups_of(snapshot)
    shared: dict[ObjectKey, Mapping[str, str]] = {}
    for obj in snapshot.pod_groups:
        key = object_key(obj)
        group = groups[key]
        shared[key] = maker.add_claims(obj, group.spec.resource_claims, partial(maker.claim_for, group))
    for obj in snapshot.pods:
        pod = pod_of(obj)
        if pod.spec.resource_claims and not is_finished(pod) and pod.metadata.uid not in maker.refusals:
            group_of_pod = groups.get(group_key(pod))
            names = shared.get(group_key(pod), {})
            maker.add_claims(obj, pod.spec.resource_claims, partial(maker.claim_of_pod, pod, group_of_pod, names))
    return snapshot.with_objects(maker.changed) if maker.changed else snapshot


class _ClaimMaker:
    """Makes claims.

    changed: the new claims, and their owners with them in the status.
    refusals: see `QuotaAdmission`.
    """

    def __init__(self, snapshot: Snapshot, admission: QuotaAdmission | None) -> None:
        self.changed: list[JSON] = []
        self.refusals = {} if admission is None else admission.refusals
        self._admission, self._templates = admission, snapshot.templates_by_key
        self._known = set(snapshot.claims_by_key)
        self._owned = dict(_generated_claims(snapshot))

    def add_claims(
        self, obj: JSON, entries: Iterable[PodResourceClaim], claim_of: Callable[[PodResourceClaim], str]
    ) -> Mapping[str, str]:
        """Write the claims of an owner's entries into its status; return all that are there, by the entry's name.

        claim_of: returns the name of the claim of an entry with a template; empty if there is none.
        """
        statuses = list((obj.get("status") or {}).get("resourceClaimStatuses") or ())
        names = {status["name"]: status.get("resourceClaimName") or "" for status in statuses}
        added = {
            entry.name: name
            for entry in entries
            if entry.resource_claim_template_name and entry.name not in names and (name := claim_of(entry))
        }
        if added:
            statuses += [{"name": entry, "resourceClaimName": name} for entry, name in added.items()]
            self.changed.append(with_status(obj, resourceClaimStatuses=statuses))
        return names | added

    def claim_of_pod(self, pod: Pod, group: PodGroup | None, shared: Mapping[str, str], entry: PodResourceClaim) -> str:
        """Return the name of the claim of a pod's entry, that of its group if it is shared."""
        if group is None or not is_shared(entry, group):
            return self.claim_for(pod, entry)
        if reason := self.refusals.get(refusal_key(group, entry.name)):
            self.refusals[refusal_key(pod, entry.name)] = reason
        return shared.get(entry.name, "")

    def claim_for(self, owner: Pod | PodGroup, entry: PodResourceClaim) -> str:
        """Return the name of the owner's own claim for an entry, which is made if there is none."""
        claim = self._owned.get((owner.metadata.uid, entry.name))
        if claim is None:
            template = self._templates.get((owner.metadata.namespace, entry.resource_claim_template_name))
            if template is None:
                return ""
            claim = with_unused_name(_claim_of_template(template, owner, entry), self._known)
            if self._admission is not None and (reason := self._admission.admit(claim)):
                self.refusals[refusal_key(owner, entry.name)] = reason
                return ""
            self._known.add(object_key(claim))
            self.changed.append(claim)
        return str(claim["metadata"]["name"])


def _generated_claims(snapshot: Snapshot) -> Iterator[tuple[tuple[str, str], JSON]]:
    """Yield the claims that were made for pods, by the pod's UID and the name of the entry."""
    for claim in snapshot.claims:
        entry_name = (claim["metadata"].get("annotations") or {}).get(POD_CLAIM_ANNOTATION)
        for owner in (claim["metadata"].get("ownerReferences") or ()) if entry_name else ():
            if owner.get("controller"):
                yield (str(owner.get("uid")), str(entry_name)), claim


def _claim_of_template(template: JSON, owner: Pod | PodGroup, entry: PodResourceClaim) -> JSON:
    base = claim_name_base(owner.metadata.name, entry.name)
    metadata = template["spec"].get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), POD_CLAIM_ANNOTATION: entry.name}
    claim = claim_made_for(owner, base, annotations, template["spec"].get("spec") or {}, entry.name)
    if metadata.get("labels"):
        claim["metadata"]["labels"] = metadata["labels"]
    return claim


def claim_made_for(pod: Pod | PodGroup, base: str, annotations: Mapping[str, str], spec: JSON, *reasons: str) -> JSON:
    """Return a new claim that belongs to a pod or a PodGroup.

    Its name begins with `base` and depends on the owner and `reasons`.
    """
    namespace, uid = pod.metadata.namespace, pod.metadata.uid
    name = generated_name(base, namespace, uid, *reasons)
    version, kind = ("v1", "Pod") if isinstance(pod, Pod) else (pod.api_version, "PodGroup")
    owner = {"apiVersion": version, "kind": kind, "name": pod.metadata.name, "uid": uid, "controller": True}
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
