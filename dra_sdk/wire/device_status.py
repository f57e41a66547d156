"""Device status as JSON: entries of `status.devices`, and the server-side apply that writes ours alone.

Source: resource.k8s.io/v1 AllocatedDeviceStatus; KEP-555 server-side apply: the list is a map by driver, pool, device
and shareID, so an apply with our field manager never touches another driver's entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from dra_sdk.model import JSON
from dra_sdk.model.claim import PreparedDevice
from dra_sdk.model.status import Condition, DeviceStatus, NetworkData
from dra_sdk.wire.dra import ClaimRef

_STATUS = {True: "True", False: "False", None: "Unknown"}


def device_status_json(driver: str, device: PreparedDevice, status: DeviceStatus, now: datetime) -> JSON:
    """The entry of one device; `now` becomes the transition time of its conditions."""
    entry: JSON = {"driver": driver, "pool": device.pool, "device": device.name}
    if device.share_id:
        entry["shareID"] = device.share_id
    if status.conditions:
        entry["conditions"] = [_condition(each, now) for each in status.conditions]
    if status.data:
        entry["data"] = dict(status.data)
    if status.network:
        entry["networkData"] = _network(status.network)
    return entry


def status_apply(ref: ClaimRef, entries: Sequence[JSON]) -> JSON:
    """The body that makes `entries` all that we report of a claim; refused by the server if the UID is another's."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid},
        "status": {"devices": list(entries)},
    }


def _condition(condition: Condition, now: datetime) -> JSON:
    return {
        "type": condition.type,
        "status": _STATUS[condition.status],
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _network(network: NetworkData) -> JSON:
    fields = {
        "interfaceName": network.interface_name,
        "hardwareAddress": network.hardware_address,
        "ips": list(network.ips),
    }
    return {key: value for key, value in fields.items() if value}
