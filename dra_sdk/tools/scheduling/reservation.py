"""Who a claim is for: the claim behind an entry of a pod, whose claim it is, and for whom it is reserved.

A pod's entry names a claim, or a template from which one is made for the pod alone. Pods of a PodGroup may share the
group's claims where the feature DRAWorkloadResourceClaims is on; `group_claims` says so.
Source: core/v1 PodResourceClaim; resource.k8s.io/v1 ResourceClaimConsumerReference; scheduling.k8s.io PodGroup;
k8s.io/dynamic-resource-allocation, package resourceclaim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dra_sdk.errors import DraError

GROUP: Final = "scheduling.k8s.io"
_UNSUPPORTED: Final = "none of the supported fields are set"


class ReservationError(DraError):
    """A claim is not the one that a pod asks for, or cannot be told yet; names pod and claim."""


class ClaimNotCreatedError(ReservationError):
    """The claim of a template does not exist yet."""


def claim_name(owner: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[str | None, bool]:
    """The name of the claim behind an entry of `spec.resourceClaims` of a pod or PodGroup.

    None if no claim is needed. The flag tells whether the claim was made from a template, so that `check_owner` has
    to hold for it. ClaimNotCreatedError while it is not there, ReservationError for an entry that names nothing.
    """
    name = entry.get("resourceClaimName")
    if name is not None:
        return name, False
    if entry.get("resourceClaimTemplateName") is None:
        raise ReservationError(f"{_entry(owner, entry.get('name', ''))}: {_UNSUPPORTED}")
    for status in _status(owner).get("resourceClaimStatuses") or []:
        if status.get("name") == entry.get("name"):
            return status.get("resourceClaimName"), True
    who = _who(owner) if _is_group(owner) else f'pod "{_full_name(owner)}"'
    raise ClaimNotCreatedError(f"{who}: ResourceClaim not created yet")


def check_owner(owner: Mapping[str, Any], claim: Mapping[str, Any], *, group_claims: bool = False) -> None:
    """ReservationError unless the claim was made for this pod or PodGroup; with `group_claims`, the pod's will do."""
    what, who = f"ResourceClaim {_full_name(claim)}", _who(owner)
    if _metadata(claim).get("namespace") != _metadata(owner).get("namespace"):
        raise ReservationError(f"{what} is not in the same namespace as {who}")
    controller = _controller(claim)
    if controller is not None and controller.get("uid") == _metadata(owner).get("uid"):
        return
    group = None if _is_group(owner) else _group_name(owner)
    if group_claims and not _is_group(owner):
        if group is not None and _is_controlled_by_group(controller, group):
            return
        raise ReservationError(f"{what} was not created for {who} (neither Pod nor PodGroup {group} is the owner)")
    kind = "PodGroup" if _is_group(owner) else "Pod"
    raise ReservationError(f"{what} was not created for {who} ({kind} is not owner)")


def is_reserved_for(pod: Mapping[str, Any], claim: Mapping[str, Any], *, group_claims: bool = False) -> bool:
    """Whether `status.reservedFor` lists the pod (or, with `group_claims`, its PodGroup)."""
    uid, group = _metadata(pod).get("uid"), _group_name(pod)
    for consumer in _status(claim).get("reservedFor") or []:
        if consumer.get("uid") == uid:
            return True
        is_group = consumer.get("apiGroup") == GROUP and consumer.get("resource") == "podgroups"
        if group_claims and group is not None and is_group and consumer.get("name") == group:
            return True
    return False


def consumer_of(
    pod: Mapping[str, Any], entry: Mapping[str, Any], group: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """The consumer reference to reserve a claim for: the pod, or its PodGroup where that has the same entry.

    `group` is the PodGroup of the pod where group claims are on. ReservationError if it is another pod's, or if an
    entry names nothing.
    """
    _check_entry(pod, entry)
    if group is not None:
        _check_member(pod, group)
        for each in (group.get("spec") or {}).get("resourceClaims") or []:
            _check_entry(group, each)
            if _same_entry(each, entry):
                return _reference(group, {"apiGroup": GROUP, "resource": "podgroups"})
    return _reference(pod, {"resource": "pods"})


def same_claim_statuses(left: Sequence[Mapping[str, Any]] | None, right: Sequence[Mapping[str, Any]] | None) -> bool:
    """Whether two `status.resourceClaimStatuses` of a pod say the same, in the same order."""
    fields = ("name", "resourceClaimName")
    return _fields(left, fields) == _fields(right, fields)


def same_extended_status(left: Mapping[str, Any] | None, right: Mapping[str, Any] | None) -> bool:
    """Whether two `status.extendedResourceClaimStatus` of a pod say the same."""
    if left is None or right is None:
        return left is right
    fields = ("containerName", "resourceName", "requestName")
    same = left.get("resourceClaimName") == right.get("resourceClaimName")
    return same and _fields(left.get("requestMappings"), fields) == _fields(right.get("requestMappings"), fields)


def _fields(entries: Sequence[Mapping[str, Any]] | None, names: Sequence[str]) -> list[list[Any]]:
    return [[entry.get(name) for name in names] for entry in entries or []]


def _metadata(each: Mapping[str, Any]) -> Mapping[str, Any]:
    return each.get("metadata") or {}


def _status(each: Mapping[str, Any]) -> Mapping[str, Any]:
    return each.get("status") or {}


def _full_name(each: Mapping[str, Any]) -> str:
    metadata = _metadata(each)
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def _is_group(owner: Mapping[str, Any]) -> bool:
    """A pod has containers, a PodGroup a scheduling policy; `kind` decides where it is there."""
    kind = owner.get("kind")
    return kind == "PodGroup" if kind else "schedulingPolicy" in (owner.get("spec") or {})


def _who(owner: Mapping[str, Any]) -> str:
    return f"{'PodGroup' if _is_group(owner) else 'Pod'} {_full_name(owner)}"


def _entry(owner: Mapping[str, Any], name: str) -> str:
    if _is_group(owner):
        return f"{_who(owner)}, spec.resourceClaim {name}"
    return f'pod "{_full_name(owner)}", spec.resourceClaim "{name}"'


def _group_name(pod: Mapping[str, Any]) -> str | None:
    name: str | None = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
    return name


def _controller(claim: Mapping[str, Any]) -> Mapping[str, Any] | None:
    owners: Sequence[Mapping[str, Any]] = _metadata(claim).get("ownerReferences") or []
    return next((each for each in owners if each.get("controller")), None)


def _is_controlled_by_group(controller: Mapping[str, Any] | None, group: str) -> bool:
    """Pods do not know the UID of their group; the version of its API may change."""
    if controller is None or controller.get("kind") != "PodGroup" or controller.get("name") != group:
        return False
    return str(controller.get("apiVersion", "")).startswith(f"{GROUP}/")


def _check_entry(owner: Mapping[str, Any], entry: Mapping[str, Any]) -> None:
    if entry.get("resourceClaimName") is None and entry.get("resourceClaimTemplateName") is None:
        raise ReservationError(f"{_who(owner)} claim {entry.get('name', '')}: {_UNSUPPORTED}")


def _check_member(pod: Mapping[str, Any], group: Mapping[str, Any]) -> None:
    name = _group_name(pod)
    if name is None:
        raise ReservationError(f"{_who(pod)} does not belong to a PodGroup")
    metadata = _metadata(group)
    if (_metadata(pod).get("namespace"), name) != (metadata.get("namespace"), metadata.get("name")):
        own = f"{_metadata(pod).get('namespace', '')}/{name}"
        raise ReservationError(f"{_who(pod)} belongs to PodGroup {own}, not PodGroup {_full_name(group)}")


def _same_entry(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    fields = ("name", "resourceClaimName", "resourceClaimTemplateName")
    return all(one.get(field) == other.get(field) for field in fields)


def _reference(each: Mapping[str, Any], where: dict[str, str]) -> dict[str, str]:
    metadata = _metadata(each)
    return {**where, "name": metadata.get("name", ""), "uid": metadata.get("uid", "")}
