"""kube-scheduler and the claim controller on the embedded API server, one scheduling round at a time.

A round creates claims from templates, finds a node for every pod that has none, allocates the claims as
`dra_sdk.tools.scheduling` decides, and writes what kube-scheduler writes: allocation and reservation into claims, the
node into pods. Nothing runs in the background; a round happens when `schedule` is called. `allocation` builds the
allocation of a claim whose devices the caller chose. Source: KEP-4381; k8s.io/dynamic-resource-allocation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dra_sdk.errors import DraError
from dra_sdk.model import JSON
from dra_sdk.model.claim import base_request
from dra_sdk.tools.scheduling.cluster import ObjectKey, SchedulingOutcome, Snapshot, schedule
from dra_sdk.tools.scheduling.cluster.claim_controller import (
    FINALIZER,
    claim_consumers,
    deallocated,
    owner_uids,
    with_status,
    without_consumers,
)
from dra_sdk.tools.scheduling.cluster.device_taint_eviction import find_evictions
from dra_sdk.tools.scheduling.cluster.snapshot import object_key
from dra_sdk.tools.simulator.local import LocalClient, retry_on_conflict
from dra_sdk.wire.profile import ServerProfile

_UNSCHEDULABLE = "Unschedulable"


class NotScheduledError(DraError):
    """A pod finds no node; the message has the reasons."""


class Scheduler:
    """Schedules the pods and claims in the API.

    `evict` is called with namespace and name of each pod that a NoExecute taint evicts.
    """

    def __init__(self, api: LocalClient, profile: ServerProfile, evict: Callable[[str, str], None]) -> None:
        self._api = api
        self._profile = profile
        self._evict = evict

    def snapshot(self) -> Snapshot:
        """Return all objects that decide where pods go, as they are now."""
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
        """Run one round. Claims without a pod are allocated too, as if a pod used them."""
        for namespace, name in find_evictions(self.snapshot()).pods:
            self._evict(namespace, name)
        return retry_on_conflict(self._round)

    def release(self, name: str, namespace: str, pod: JSON) -> None:
        """Remove the reservation of a deleted pod from a claim, as the claim controller does.

        A claim that the scheduler allocated is deallocated with its last pod. A claim that the pod owns is deleted, as
        the garbage collector does, which does not ask whether an owner is a controller.
        """
        uid = pod["metadata"]["uid"]
        after = retry_on_conflict(lambda: self._write_status_without(uid, name, namespace))
        finalizers = after["metadata"].get("finalizers", [])
        retry_on_conflict(lambda: self._write_finalizers(finalizers, name, namespace))
        if any(owner["uid"] == uid for owner in after["metadata"].get("ownerReferences", [])):
            self._api.delete("resourceclaims", name, namespace)

    def _write_status_without(self, uid: str, name: str, namespace: str) -> JSON:
        """Return the claim with the status that it has without this pod, and its finalizers."""
        claim = self._api.get("resourceclaims", name, namespace)
        scheduled = FINALIZER in claim["metadata"].get("finalizers", [])
        if uid in owner_uids(claim):
            after = deallocated(claim)
        else:
            after = without_consumers(claim, [uid]) if scheduled else _unreserved(claim, uid)
        if after != claim:
            self._api.update_status("resourceclaims", after)
        return after

    def _write_finalizers(self, finalizers: list[str], name: str, namespace: str) -> None:
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


def _unreserved(claim: JSON, uid: str) -> JSON:
    users = claim_consumers(claim)
    left = [user for user in users if user["uid"] != uid]
    return with_status(claim, reservedFor=left or None) if left != users else claim


def _changed(before: Mapping[ObjectKey, JSON], after: Iterable[JSON]) -> Iterator[JSON]:
    return (obj for obj in after if before.get(object_key(obj)) != obj)


# -- allocation


@dataclass(frozen=True)
class AllocatedDevice:
    """One device of an allocation: a DeviceRequestAllocationResult.

    request: the request that the device satisfies, `request` or `request/subrequest`.
    driver: the device's driver.
    pool: the device's pool.
    device: the device's name.
    share_id: the `shareID` of a device that may be allocated several times.
    admin_access: whether the request has adminAccess.
    more: further fields of the API type, such as `consumedCapacity`.
    """

    request: str
    driver: str
    pool: str
    device: str
    share_id: str | None = None
    admin_access: bool = False
    more: Mapping[str, Any] | None = None

    def encoded(self) -> JSON:
        """Return it as in `status.allocation.devices.results`."""
        result: JSON = {"request": self.request, "driver": self.driver, "pool": self.pool, "device": self.device}
        result |= {"shareID": self.share_id} if self.share_id else {}
        result |= {"adminAccess": True} if self.admin_access else {}
        return {**result, **(self.more or {})}


def allocation(claim: JSON, classes: Mapping[str, JSON], devices: Sequence[AllocatedDevice], node: str) -> JSON:
    """Return the `status.allocation` with exactly these devices on this node, and the config of classes and claim."""
    results = [device.encoded() for device in devices]
    config = [*_class_config(claim, classes, devices), *_claim_config(claim, devices)]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    allocated: JSON = {"results": results}
    if config:
        allocated["config"] = config
    return {"devices": allocated, "nodeSelector": {"nodeSelectorTerms": [term]}}


def _class_config(claim: JSON, classes: Mapping[str, JSON], devices: Sequence[AllocatedDevice]) -> Iterator[JSON]:
    for request in dict.fromkeys(device.request for device in devices):
        device_class = classes.get(class_name(claim, request), {})
        for entry in device_class.get("spec", {}).get("config", []):
            yield {"source": "FromClass", "requests": [request], **entry}


def _claim_config(claim: JSON, devices: Sequence[AllocatedDevice]) -> Iterator[JSON]:
    chosen = {device.request for device in devices} | {base_request(device.request) for device in devices}
    for entry in claim["spec"].get("devices", {}).get("config", []):
        if not entry.get("requests") or chosen & set(entry["requests"]):
            yield {"source": "FromClaim", **entry}


def class_name(claim: JSON, request: str) -> str:
    """Return the device class of `request` or `request/subrequest`; `KeyError` if the claim has no such request."""
    names: dict[str, str] = {}
    for entry in claim["spec"].get("devices", {}).get("requests", []):
        if "exactly" in entry:
            names[entry["name"]] = entry["exactly"]["deviceClassName"]
        for alternative in entry.get("firstAvailable", []):
            names[f"{entry['name']}/{alternative['name']}"] = alternative["deviceClassName"]
    if request not in names:
        raise KeyError(f"claim {claim['metadata']['name']} has no request {request!r}")
    return names[request]
