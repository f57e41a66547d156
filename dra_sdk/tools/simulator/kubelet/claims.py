"""The kubelet's memory of prepared claims, and the file that survives its restart (`dra_manager_state`).

The file has what the kubelet's has: which claims, for which pods, with which devices. That a claim is prepared is not
in it, so after a restart a pod's claims are prepared again. Source: Kubernetes 1.36 pkg/kubelet/cm/dra/state.
"""

from __future__ import annotations

import json
import threading
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dra_sdk.tools.simulator.kubelet.errors import CheckpointError, PodClaimError
from dra_sdk.tools.simulator.kubelet.records import ClaimRef, PreparedDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_KIND = {"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1"}


@dataclass
class ClaimInfo:
    """One claim on this node. `drivers` has an entry for every driver in the allocation, even one without devices."""

    ref: ClaimRef
    drivers: dict[str, tuple[PreparedDevice, ...]]
    pod_uids: set[str] = field(default_factory=set)
    prepared: bool = False

    @property
    def devices(self) -> tuple[PreparedDevice, ...]:
        """The devices of all drivers."""
        return tuple(device for devices in self.drivers.values() for device in devices)


class ClaimCache:
    """The claims on this node, by namespace and name. Thread-safe; every change is saved before the call returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._claims = {(info.ref.namespace, info.ref.name): info for info in load(path)}

    def get(self, namespace: str, name: str) -> ClaimInfo | None:
        """The claim of this name, if it is on the node."""
        with self._lock:
            return self._claims.get((namespace, name))

    def all(self) -> list[ClaimInfo]:
        """Every claim on the node."""
        with self._lock:
            return list(self._claims.values())

    def of_pod(self, pod_uid: str) -> list[ClaimInfo]:
        """The claims that this pod still holds."""
        return [info for info in self.all() if pod_uid in info.pod_uids]

    def reference(self, pod_uid: str, wanted: Iterable[ClaimInfo]) -> list[ClaimInfo]:
        """Adds the pod to each claim and returns them as they are on the node.

        `PodClaimError` where an older claim of that name is still there, as after a pod was force-deleted.
        """
        with self._lock:
            infos = []
            for new in wanted:
                key = (new.ref.namespace, new.ref.name)
                info = self._claims.setdefault(key, new)
                if info.ref.uid != new.ref.uid:
                    why = (
                        f"old ResourceClaim with same name {new.ref.name} and different UID {info.ref.uid} "
                        "still exists (previous pod force-deleted?!)"
                    )
                    raise PodClaimError("claim-replaced", why, claim=str(new.ref))
                info.pod_uids.add(pod_uid)
                infos.append(info)
            self._save()
            return infos

    def change(self, action: Callable[[], None]) -> None:
        """Runs `action`, which may change claim infos, under the lock, and saves."""
        with self._lock:
            action()
            self._save()

    def drop(self, infos: Iterable[ClaimInfo]) -> None:
        """Forgets claims that have been unprepared."""
        with self._lock:
            for info in infos:
                self._claims.pop((info.ref.namespace, info.ref.name), None)
            self._save()

    def _save(self) -> None:
        data = json.dumps({**_KIND, "ClaimInfoStateList": [_encoded(info) for info in self._claims.values()]})
        checkpoint = {"Data": data, "Checksum": zlib.crc32(data.encode())}
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps(checkpoint))
        temporary.replace(self._path)


def load(path: Path) -> list[ClaimInfo]:
    """Reads the state file; no file means no claims, a damaged one is a `CheckpointError`."""
    if not path.exists():
        return []
    try:
        checkpoint = json.loads(path.read_text())
        data = str(checkpoint["Data"])
        if checkpoint["Checksum"] != zlib.crc32(data.encode()):
            raise CheckpointError("checkpoint", f"{path}: the checksum does not match")
        return [_decoded(entry) for entry in json.loads(data)["ClaimInfoStateList"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError("checkpoint", f"{path} cannot be read: {error!r}") from error


def _encoded(info: ClaimInfo) -> dict[str, Any]:
    return {
        "ClaimUID": info.ref.uid,
        "ClaimName": info.ref.name,
        "Namespace": info.ref.namespace,
        "PodUIDs": {uid: {} for uid in sorted(info.pod_uids)},
        "DriverState": {
            driver: {
                "Devices": [
                    {
                        "PoolName": device.pool,
                        "DeviceName": device.device,
                        "ShareID": device.share_id,
                        "RequestNames": list(device.requests),
                        "CDIDeviceIDs": list(device.cdi_ids),
                    }
                    for device in devices
                ]
            }
            for driver, devices in info.drivers.items()
        },
    }


def _decoded(entry: dict[str, Any]) -> ClaimInfo:
    ref = ClaimRef(entry["Namespace"], entry["ClaimName"], entry["ClaimUID"])
    drivers = {driver: tuple(_devices(driver, state)) for driver, state in entry["DriverState"].items()}
    return ClaimInfo(ref, drivers, set(entry["PodUIDs"]))


def _devices(driver: str, state: dict[str, Any]) -> Iterator[PreparedDevice]:
    for device in state["Devices"] or []:
        yield PreparedDevice(
            driver,
            device["PoolName"],
            device["DeviceName"],
            tuple(device["RequestNames"] or ()),
            tuple(device["CDIDeviceIDs"] or ()),
            device.get("ShareID"),  # which 1.34 does not keep
        )
