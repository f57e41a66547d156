"""The scheduler and the controllers around it, one round at a time, against the embedded API server.

A round makes claims from templates, finds a node for every pod that has none, allocates their claims with the real
match (`dra_sdk.tools.scheduling`), and writes the outcome as kube-scheduler does: allocation and reservation into
claims, the node into pods. Nothing runs in the background: who wants a round asks for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra_sdk.errors import DraError
from dra_sdk.tools.scheduling.cluster import SchedulingOutcome, Snapshot, schedule
from dra_sdk.tools.scheduling.cluster.claim_controller import FINALIZER, deallocated, with_status, without_consumers
from dra_sdk.tools.scheduling.cluster.device_taint_eviction import find_evictions
from dra_sdk.tools.scheduling.cluster.snapshot import object_key
from dra_sdk.tools.simulator.local import persistently

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from dra_sdk.model import JSON
    from dra_sdk.tools.scheduling.cluster import ObjectKey
    from dra_sdk.tools.simulator.local import LocalClient
    from dra_sdk.wire.profile import ServerProfile

_UNSCHEDULABLE = "Unschedulable"


class NotScheduledError(DraError):
    """A pod finds no node; the message has the reasons."""


class Scheduler:
    """Schedules what is in the API. `evict` is called with namespace and name of each pod that a taint drives out."""

    def __init__(self, api: LocalClient, profile: ServerProfile, evict: Callable[[str, str], None]) -> None:
        self._api = api
        self._profile = profile
        self._evict = evict

    def snapshot(self) -> Snapshot:
        """Everything that decides where pods go, as it is now."""
        return Snapshot(
            nodes=self._all("nodes"),
            slices=self._all("resourceslices"),
            classes=self._all("deviceclasses"),
            claims=self._all("resourceclaims"),
            templates=self._all("resourceclaimtemplates"),
            pods=self._all("pods"),
            rules=self._all("devicetaintrules"),
            namespaces=self._all("namespaces"),
            profile=self._profile,
        )

    def schedule(self) -> SchedulingOutcome:
        """One round. Claims that no pod uses are allocated too, as if a pod used them."""
        for namespace, name in find_evictions(self.snapshot()).pods:
            self._evict(namespace, name)
        return persistently(self._round)

    def release(self, name: str, namespace: str, pod: JSON) -> None:
        """What the claim controller does once a pod is gone: its own claims go too, others lose the reservation.

        A claim that the scheduler allocated loses its devices with the last pod.
        """
        uid = pod["metadata"]["uid"]
        after = persistently(lambda: self._take_back(name, namespace, uid))
        persistently(lambda: self._finalize(name, namespace, after["metadata"].get("finalizers", [])))
        if _owned(after, uid):
            self._api.delete("resourceclaims", name, namespace)

    def _take_back(self, name: str, namespace: str, uid: str) -> JSON:
        """Write the status that a claim has without a pod; the claim as it is to be."""
        claim = self._api.get("resourceclaims", name, namespace)
        scheduled = FINALIZER in claim["metadata"].get("finalizers", [])
        if _owned(claim, uid):
            after = deallocated(claim)
        else:
            after = without_consumers(claim, [uid]) if scheduled else _unreserved(claim, uid)
        if after != claim:
            self._api.update_status("resourceclaims", after)
        return after

    def _finalize(self, name: str, namespace: str, finalizers: list[str]) -> None:
        claim = self._api.get("resourceclaims", name, namespace)
        if claim["metadata"].get("finalizers", []) != finalizers:
            self._api.update("resourceclaims", {**claim, "metadata": {**claim["metadata"], "finalizers": finalizers}})

    def _round(self) -> SchedulingOutcome:
        before = self.snapshot()
        outcome = schedule(before)
        self._write_claims(before, outcome.snapshot)
        self._write_pods(before, outcome)
        return outcome

    def _all(self, plural: str) -> tuple[JSON, ...]:
        served = {kind.plural for kind in self._api.store.catalog}
        return tuple(self._api.list(plural)) if plural in served else ()

    def _write_claims(self, before: Snapshot, after: Snapshot) -> None:
        for key in before.claims_by_key.keys() - after.claims_by_key.keys():
            self._api.delete("resourceclaims", key[1], key[0])
        for claim in _changed(before.claims_by_key, after.claims_by_key.values()):
            old = before.claims_by_key.get(object_key(claim))
            metadata = {name: value for name, value in claim["metadata"].items() if name != "uid" or old}
            stored = {**claim, "metadata": metadata}
            written = self._api.update("resourceclaims", stored) if old else self._api.create("resourceclaims", stored)
            if (claim.get("status") or {}) != (written.get("status") or {}):
                self._api.update_status("resourceclaims", {**written, "status": claim.get("status") or {}})

    def _write_pods(self, before: Snapshot, outcome: SchedulingOutcome) -> None:
        for pod in _changed(before.pods_by_key, outcome.snapshot.pods):
            written = self._api.update("pods", pod)
            self._api.update_status("pods", {**written, "status": pod.get("status") or {}})
        for placement in outcome.unplaced:
            namespace, name = placement.pod
            condition = {"type": "PodScheduled", "status": "False", "reason": _UNSCHEDULABLE}
            status = {"phase": "Pending", "conditions": [{**condition, "message": placement.reason}]}
            self._api.patch("pods", {"status": status}, name, namespace, subresource="status")


def _owned(claim: JSON, uid: str) -> bool:
    return any(owner["uid"] == uid for owner in claim["metadata"].get("ownerReferences", []))


def _unreserved(claim: JSON, uid: str) -> JSON:
    users = (claim.get("status") or {}).get("reservedFor") or []
    left = [user for user in users if user["uid"] != uid]
    return with_status(claim, reservedFor=left or None) if left != users else claim


def _changed(before: Mapping[ObjectKey, JSON], after: Iterable[JSON]) -> Iterator[JSON]:
    return (each for each in after if before.get(object_key(each)) != each)
