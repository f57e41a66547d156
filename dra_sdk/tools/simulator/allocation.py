"""What the scheduler writes into a claim: the allocation with its configuration, and who the claim is reserved for.

Choosing devices is not done here: the caller says which ones. Source: KEP-4381; k8s.io/dynamic-resource-allocation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dra_sdk.model.claim import base_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dra_sdk.model import JSON


@dataclass(frozen=True)
class AllocatedDevice:
    """One allocation result: the device that satisfies a request, `request` or `request/subrequest`.

    `more` are further fields of the API's DeviceRequestAllocationResult, such as `consumedCapacity`.
    """

    request: str
    driver: str
    pool: str
    device: str
    share_id: str | None = None
    admin_access: bool = False
    more: Mapping[str, Any] | None = None

    def encoded(self) -> JSON:
        """As it stands in `status.allocation.devices.results`."""
        result: JSON = {"request": self.request, "driver": self.driver, "pool": self.pool, "device": self.device}
        result |= {"shareID": self.share_id} if self.share_id else {}
        result |= {"adminAccess": True} if self.admin_access else {}
        return {**result, **(self.more or {})}


def allocation(claim: JSON, classes: Mapping[str, JSON], devices: Sequence[AllocatedDevice], node: str) -> JSON:
    """`status.allocation`: the results, the configuration that goes with them (classes first), and the node."""
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
    """The device class behind `request` or `request/subrequest`; `KeyError` where the claim has no such request."""
    base, _, sub = request.partition("/")
    for entry in claim["spec"].get("devices", {}).get("requests", []):
        if entry["name"] != base:
            continue
        if not sub and "exactly" in entry:
            return str(entry["exactly"]["deviceClassName"])
        for alternative in entry.get("firstAvailable", []):
            if alternative["name"] == sub:
                return str(alternative["deviceClassName"])
    raise KeyError(f"claim {claim['metadata']['name']} has no request {request!r}")
