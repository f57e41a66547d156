"""What a driver reports about an allocated device in the claim's status.

Source: resource.k8s.io/v1 AllocatedDeviceStatus, NetworkDeviceData (KEP-4817); conditions are meta/v1 Condition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition; `type` is a label key such as `Ready`, `reason` one CamelCase word. At most 8 of a device."""

    type: str
    status: bool | None
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkData:
    """A network interface: `ips` with prefix length (`10.0.0.5/24`), at most 16; `hardware_address` as text."""

    interface_name: str = ""
    hardware_address: str = ""
    ips: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStatus:
    """The entry of one device in `status.devices`; `data` is any JSON object of at most 10 KiB."""

    conditions: Sequence[Condition] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    network: NetworkData | None = None
