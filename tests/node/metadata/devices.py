"""Prepared devices as the metadata files need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dra_sdk import AllocatedDevice, AttributeValue, Claim, DeviceStatus, NetworkData, Node, PreparedDevice
from dra_sdk.node.files import Files
from dra_sdk.node.metadata import MetadataFile
from dra_sdk.node.metadata.directory import MetadataDirectory


def prepared(
    request: str,
    pool: str,
    name: str,
    attributes: Mapping[str, AttributeValue] | None = None,
    network: NetworkData | None = None,
) -> PreparedDevice:
    """A device with these attributes for its containers, and this network data."""
    status = DeviceStatus(network=network) if network else None
    return PreparedDevice(request, pool, name, status=status, metadata=attributes or {})


def claim_files(driver: str, claim: Mapping[str, Any], devices: Sequence[PreparedDevice]) -> list[MetadataFile]:
    """The files of a claim with these devices, none of which has published attributes."""
    allocated = [AllocatedDevice(device.request, device.pool, device.name, None) for device in devices]
    ref = {name: claim["metadata"].get(name, "") for name in ("namespace", "name", "uid")}
    held = Claim(**ref, node=Node("node-a"), devices=allocated, raw=claim)
    return MetadataDirectory(driver, Path(), Files()).build(held, devices)
