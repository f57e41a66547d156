"""Prepared devices as the metadata files need them."""

from __future__ import annotations

from collections.abc import Mapping

from dra_sdk import AttributeValue, DeviceStatus, NetworkData, PreparedDevice


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
