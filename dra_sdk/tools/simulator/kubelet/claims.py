"""The claims that the kubelet has prepared, in memory and in its checkpoint file (`dra_manager_state`).

The file has the claims, their pods and their devices, as the kubelet's has. It does not say whether a claim is
prepared, so after a restart the claims of a pod are prepared again. Source: Kubernetes 1.36 pkg/kubelet/cm/dra/state.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dra_sdk.model.claim import ClaimRef
from dra_sdk.tools.simulator.kubelet.records import AnsweredDevice, CheckpointError, PodClaimError, claim_name

_KIND = {"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1"}


@dataclass
class ClaimInfo:
    """One claim on this node.

    ref: the claim.
    drivers: the devices by driver, with an entry for every driver in the allocation, even without devices.
    pod_uids: the pods that use it.
    prepared: whether all drivers have prepared it since the kubelet started.
    """

    ref: ClaimRef
    drivers: dict[str, tuple[AnsweredDevice, ...]]
    pod_uids: set[str] = field(default_factory=set)
    prepared: bool = False

    @property
    def devices(self) -> tuple[AnsweredDevice, ...]:
        """The devices of all drivers."""
        return tuple(device for devices in self.drivers.values() for device in devices)


class ClaimCache:
    """The claims on this node, by namespace and name. Thread-safe; each call saves its change before it returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._claims = {(info.ref.namespace, info.ref.name): info for info in load(path)}

    def get(self, namespace: str, name: str) -> ClaimInfo | None:
        """Return the claim of this name, None if it is not on the node."""
        with self._lock:
            return self._claims.get((namespace, name))

    def all(self) -> list[ClaimInfo]:
        """Return every claim on the node."""
        with self._lock:
            return list(self._claims.values())

    def of_pod(self, pod_uid: str) -> list[ClaimInfo]:
        """Return the claims that this pod uses."""
        return [info for info in self.all() if pod_uid in info.pod_uids]

    def add_pod(self, pod_uid: str, wanted: Iterable[ClaimInfo]) -> list[ClaimInfo]:
        """Add the pod to each claim, and new claims to the node; return the claims as they are on the node.

        `PodClaimError` if an older claim of the same name is on the node, as after a pod was force-deleted.
        """
        infos = []
        with self.changing():
            for new in wanted:
                key = (new.ref.namespace, new.ref.name)
                info = self._claims.setdefault(key, new)
                if info.ref.uid != new.ref.uid:
                    why = (
                        f"old ResourceClaim with same name {new.ref.name} and different UID {info.ref.uid} "
                        "still exists (previous pod force-deleted?!)"
                    )
                    raise PodClaimError("claim-replaced", why, claim=claim_name(new.ref))
                info.pod_uids.add(pod_uid)
                infos.append(info)
        return infos

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock while claims are changed, and save them then; an error is passed on, and nothing is saved."""
        with self._lock:
            yield
            self._save()

    def delete(self, infos: Iterable[ClaimInfo]) -> None:
        """Delete claims that have been unprepared."""
        with self.changing():
            for info in infos:
                self._claims.pop((info.ref.namespace, info.ref.name), None)

    def _save(self) -> None:
        data = json.dumps({**_KIND, "ClaimInfoStateList": [_encoded(info) for info in self._claims.values()]})
        checkpoint = {"Data": data, "Checksum": zlib.crc32(data.encode())}
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps(checkpoint))
        temporary.replace(self._path)


def load(path: Path) -> list[ClaimInfo]:
    """Read the file: no file is no claims, a damaged file is a `CheckpointError`."""
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


def _devices(driver: str, state: dict[str, Any]) -> Iterator[AnsweredDevice]:
    for device in state["Devices"] or []:
        yield AnsweredDevice(
            driver,
            device["PoolName"],
            device["DeviceName"],
            tuple(device["RequestNames"] or ()),
            tuple(device["CDIDeviceIDs"] or ()),
            device.get("ShareID"),  # 1.34 does not write it
        )
