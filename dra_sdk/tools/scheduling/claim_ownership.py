"""Which claim an entry of a pod refers to, who owns the claim, and for whom it is reserved.

An entry of `spec.resourceClaims` names a claim, or a template from which a claim is made for this pod alone. If the
feature DRAWorkloadResourceClaims is on (`group_claims`), the pods of a PodGroup may share the claims of the group.
Source: core/v1 PodResourceClaim; resource.k8s.io/v1 ResourceClaimConsumerReference; scheduling.k8s.io PodGroup;
k8s.io/dynamic-resource-allocation, package resourceclaim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dra_sdk.errors import DraError

SCHEDULING_API_GROUP: Final = "scheduling.k8s.io"
_UNSUPPORTED: Final = "none of the supported fields are set"


class ClaimOwnershipError(DraError):
    """A claim does not belong to a pod, or cannot be determined yet; the message names pod and claim."""


class ClaimNotCreatedError(ClaimOwnershipError):
    """The claim for a template does not exist yet."""


def claim_name(owner: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[str | None, bool]:
    """Return the name of the claim behind an entry of `spec.resourceClaims` of a pod or PodGroup.

    The name is None if no claim is needed. The flag is True if the claim was made from a template: then the caller has
    to call `check_owner`. Raises ClaimNotCreatedError while the claim does not exist, and ClaimOwnershipError for an
    entry that names neither a claim nor a template.
    """
    name = entry.get("resourceClaimName")
    if name is not None:
        return name, False
    if entry.get("resourceClaimTemplateName") is None:
        raise ClaimOwnershipError(f"{_described_entry(owner, entry.get('name', ''))}: {_UNSUPPORTED}")
    for status in _status(owner).get("resourceClaimStatuses") or []:
        if status.get("name") == entry.get("name"):
            return status.get("resourceClaimName"), True
    owner_name = _described(owner) if _is_pod_group(owner) else f'pod "{_full_name(owner)}"'
    raise ClaimNotCreatedError(f"{owner_name}: ResourceClaim not created yet")


def check_owner(owner: Mapping[str, Any], claim: Mapping[str, Any], *, group_claims: bool = False) -> None:
    """Raise ClaimOwnershipError unless the claim was made for this pod or PodGroup.

    With `group_claims`, a claim that was made for the PodGroup of the pod is accepted too.
    """
    claim_name, owner_name = f"ResourceClaim {_full_name(claim)}", _described(owner)
    if _metadata(claim).get("namespace") != _metadata(owner).get("namespace"):
        raise ClaimOwnershipError(f"{claim_name} is not in the same namespace as {owner_name}")
    controller = _controller_of(claim)
    if controller is not None and controller.get("uid") == _metadata(owner).get("uid"):
        return
    group = None if _is_pod_group(owner) else _pod_group_name(owner)
    if group_claims and not _is_pod_group(owner):
        if group is not None and _is_group_controller(controller, group):
            return
        raise ClaimOwnershipError(
            f"{claim_name} was not created for {owner_name} (neither Pod nor PodGroup {group} is the owner)"
        )
    kind = "PodGroup" if _is_pod_group(owner) else "Pod"
    raise ClaimOwnershipError(f"{claim_name} was not created for {owner_name} ({kind} is not owner)")


def is_reserved_for(pod: Mapping[str, Any], claim: Mapping[str, Any], *, group_claims: bool = False) -> bool:
    """Return whether `status.reservedFor` lists the pod or, with `group_claims`, its PodGroup."""
    uid, group = _metadata(pod).get("uid"), _pod_group_name(pod)
    for consumer in _status(claim).get("reservedFor") or []:
        if consumer.get("uid") == uid:
            return True
        is_group = consumer.get("apiGroup") == SCHEDULING_API_GROUP and consumer.get("resource") == "podgroups"
        if group_claims and group is not None and is_group and consumer.get("name") == group:
            return True
    return False


def consumer_reference(
    pod: Mapping[str, Any], entry: Mapping[str, Any], group: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Return the ResourceClaimConsumerReference for a pod: its PodGroup if that has the same entry, else the pod.

    `group` is the PodGroup of the pod if group claims are on. Raises ClaimOwnershipError if the pod is in another
    group, or if an entry names neither a claim nor a template.
    """
    _check_entry(pod, entry)
    if group is not None:
        _check_membership(pod, group)
        for each in (group.get("spec") or {}).get("resourceClaims") or []:
            _check_entry(group, each)
            if _same_entry(each, entry):
                return _reference(group, {"apiGroup": SCHEDULING_API_GROUP, "resource": "podgroups"})
    return _reference(pod, {"resource": "pods"})


def same_claim_statuses(left: Sequence[Mapping[str, Any]] | None, right: Sequence[Mapping[str, Any]] | None) -> bool:
    """Return whether two `status.resourceClaimStatuses` of a pod are equal, order included."""
    fields = ("name", "resourceClaimName")
    return _selected_fields(left, fields) == _selected_fields(right, fields)


def same_extended_status(left: Mapping[str, Any] | None, right: Mapping[str, Any] | None) -> bool:
    """Return whether two `status.extendedResourceClaimStatus` of a pod are equal."""
    if left is None or right is None:
        return left is right
    fields = ("containerName", "resourceName", "requestName")
    if left.get("resourceClaimName") != right.get("resourceClaimName"):
        return False
    left_mappings = _selected_fields(left.get("requestMappings"), fields)
    return left_mappings == _selected_fields(right.get("requestMappings"), fields)


def _selected_fields(entries: Sequence[Mapping[str, Any]] | None, names: Sequence[str]) -> list[list[Any]]:
    return [[entry.get(name) for name in names] for entry in entries or []]


def _metadata(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    return obj.get("metadata") or {}


def _status(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    return obj.get("status") or {}


def _full_name(obj: Mapping[str, Any]) -> str:
    metadata = _metadata(obj)
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def _is_pod_group(owner: Mapping[str, Any]) -> bool:
    """Tell PodGroups from pods by `kind`, or without it by `spec.schedulingPolicy`, which only PodGroups have."""
    kind = owner.get("kind")
    return kind == "PodGroup" if kind else "schedulingPolicy" in (owner.get("spec") or {})


def _described(owner: Mapping[str, Any]) -> str:
    return f"{'PodGroup' if _is_pod_group(owner) else 'Pod'} {_full_name(owner)}"


def _described_entry(owner: Mapping[str, Any], name: str) -> str:
    if _is_pod_group(owner):
        return f"{_described(owner)}, spec.resourceClaim {name}"
    return f'pod "{_full_name(owner)}", spec.resourceClaim "{name}"'


def _pod_group_name(pod: Mapping[str, Any]) -> str | None:
    name: str | None = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
    return name


def _controller_of(claim: Mapping[str, Any]) -> Mapping[str, Any] | None:
    owners: Sequence[Mapping[str, Any]] = _metadata(claim).get("ownerReferences") or []
    return next((each for each in owners if each.get("controller")), None)


def _is_group_controller(controller: Mapping[str, Any] | None, group: str) -> bool:
    """Compare by name, since pods do not know the UID of their group; any version of the API counts."""
    if controller is None or controller.get("kind") != "PodGroup" or controller.get("name") != group:
        return False
    return str(controller.get("apiVersion", "")).startswith(f"{SCHEDULING_API_GROUP}/")


def _check_entry(owner: Mapping[str, Any], entry: Mapping[str, Any]) -> None:
    if entry.get("resourceClaimName") is None and entry.get("resourceClaimTemplateName") is None:
        raise ClaimOwnershipError(f"{_described(owner)} claim {entry.get('name', '')}: {_UNSUPPORTED}")


def _check_membership(pod: Mapping[str, Any], group: Mapping[str, Any]) -> None:
    name = _pod_group_name(pod)
    if name is None:
        raise ClaimOwnershipError(f"{_described(pod)} does not belong to a PodGroup")
    metadata = _metadata(group)
    if (_metadata(pod).get("namespace"), name) != (metadata.get("namespace"), metadata.get("name")):
        own = f"{_metadata(pod).get('namespace', '')}/{name}"
        raise ClaimOwnershipError(f"{_described(pod)} belongs to PodGroup {own}, not PodGroup {_full_name(group)}")


def _same_entry(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    fields = ("name", "resourceClaimName", "resourceClaimTemplateName")
    return all(one.get(field) == other.get(field) for field in fields)


def _reference(obj: Mapping[str, Any], kind: dict[str, str]) -> dict[str, str]:
    metadata = _metadata(obj)
    return {**kind, "name": metadata.get("name", ""), "uid": metadata.get("uid", "")}
