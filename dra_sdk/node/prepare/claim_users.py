"""Which pods use a claim: those that it is reserved for, and those of a PodGroup that it is reserved for (KEP-5729).

The scheduler adds pods to `status.reservedFor` at any time, but the kubelet prepares a claim once on a node. So the
claim is read again for a pod that is not known to use it.

Source: k8s.io/dynamic-resource-allocation resourceclaim.IsReservedForPod; core/v1 PodSpec.schedulingGroup.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

from dra_sdk.errors import ApiError, ClaimError, NotFoundError, RetriableError
from dra_sdk.model import JSON
from dra_sdk.model.claim import ClaimRef, Deadline
from dra_sdk.model.container import PodSandbox
from dra_sdk.node.prepare.allocation import Fetch, read_status
from dra_sdk.wire.resource.claims import ResourceClaimStatus

FetchPod = Callable[[str, str, Deadline], JSON]
"""Reads a pod by namespace and name from the API server before the deadline."""
READ_SECONDS: Final = 0.6  # for claim and pod: a runtime waits 2 s for all plugins, and the hook comes after it
_FORBIDDEN: Final = 403


class ClaimUsers:
    """Reads from the API server who uses claims. Safe for threads.

    fetch: reads a ResourceClaim.
    fetch_pod: reads a pod; needed only for claims that are reserved for a PodGroup.
    """

    def __init__(self, fetch: Fetch, fetch_pod: FetchPod) -> None:
        self._fetch, self._fetch_pod = fetch, fetch_pod
        self._owners: dict[str, str] = {}  # the UIDs of pods for which claims were generated, by the claim's UID

    def read(self, ref: ClaimRef, pod: PodSandbox) -> list[str]:
        """Return the UIDs of the pods that a claim is reserved for, and of `pod` if its PodGroup is among them.

        ClaimError if `pod` does not use the claim, another DraError if that cannot be read.
        """
        stranger = ClaimError(f"{ref} is not reserved for {pod} ({pod.uid})")
        if self._owners.get(ref.uid, pod.uid) != pod.uid:
            raise stranger
        ends = monotonic() + READ_SECONDS
        deadline = Deadline(lambda: ends - monotonic())
        try:
            raw = self._fetch(ref, deadline)
        except NotFoundError as error:
            raise ClaimError(f"{ref} was deleted") from error
        if owner := owner_pod(raw):
            self._owners[ref.uid] = owner
        status = read_status(raw, ref)
        pods, groups = reserved_pods(status), reserved_pod_groups(status)
        if pod.uid in pods:
            return pods
        if not groups or self._group(pod, deadline) not in groups:
            raise stranger
        return [*pods, pod.uid]

    def forget(self, uid: str) -> None:
        """Forget a claim that holds nothing any more."""
        self._owners.pop(uid, None)

    def _group(self, pod: PodSandbox, deadline: Deadline) -> str:
        """Return the PodGroup of a pod, empty if it has none. RetriableError if the role may not read pods."""
        try:
            raw = self._fetch_pod(pod.namespace, pod.name, deadline)
        except NotFoundError:
            return ""
        except ApiError as error:
            if error.status != _FORBIDDEN:
                raise
            raise RetriableError(
                f"{pod} may use a claim of its PodGroup, but its scheduling group cannot be read: the role needs get "
                f"of pods, which the chart gives a driver with podGroupClaims: true ({error})"
            ) from error
        if raw["metadata"]["uid"] != pod.uid:
            return ""
        return scheduling_group(raw)


def scheduling_group(pod: JSON) -> str:
    """Return the name of the PodGroup of a pod, empty if it has none."""
    group: str = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName") or ""
    return group


def reserved_pods(status: ResourceClaimStatus) -> list[str]:
    """Return the UIDs of the pods that a claim is reserved for."""
    consumers = status.reserved_for or ()
    return [consumer.uid for consumer in consumers if (consumer.api_group or "", consumer.resource) == ("", "pods")]


def reserved_pod_groups(status: ResourceClaimStatus) -> set[str]:
    """Return the names of the PodGroups that a claim is reserved for."""
    return {
        consumer.name
        for consumer in status.reserved_for or ()
        if (consumer.api_group, consumer.resource) == ("scheduling.k8s.io", "podgroups")
    }


def owner_pod(raw: JSON) -> str:
    """Return the UID of the pod that a claim was generated for, so that no other can use it; empty if there is none."""
    owners = raw["metadata"].get("ownerReferences") or ()
    kinds = {owner["uid"]: (owner.get("apiVersion"), owner.get("kind")) for owner in owners if owner.get("controller")}
    return next((uid for uid, kind in kinds.items() if kind == ("v1", "Pod")), "")
