"""What a driver reports about its devices: the status of an allocated one in its claim, and the health of any one.

Source: resource.k8s.io/v1 AllocatedDeviceStatus, NetworkDeviceData (KEP-4817) and meta/v1 Condition; KEP-4680 and
DRAResourceHealth for the health, which the kubelet shows in the pod's status. Health does not affect scheduling. Taints
do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of a device (meta/v1 Condition). The SDK sets the transition time.

    type: label key, unique in the device: `Ready` for a device that is configured, or `example.com/LinkUp`.
    status: True, False, or None for Unknown.
    reason: one CamelCase word, such as `LinkUp`, at most 1024 bytes.
    message: text for people, at most 32 KiB.
    """

    type: str
    status: bool | None
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkData:
    """The network interface of a device in the pod (NetworkDeviceData).

    interface_name: name of the interface in the pod, at most 256 bytes.
    hardware_address: hardware address as text, such as `02:42:ac:11:00:02`, at most 128 bytes.
    ips: addresses with prefix length in canonical form, such as `10.0.0.5/24` or `2001:db8::5/64`. At most 16.
    """

    interface_name: str = ""
    hardware_address: str = ""
    ips: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStatus:
    """The entry of one device in `status.devices` of a claim (AllocatedDeviceStatus, KEP-4817).

    conditions: the latest state of the device, at most 8 conditions.
    data: JSON object of the driver's own, at most 10 KiB.
    network: network interface of the device in the pod. None: it has none.
    """

    conditions: Sequence[Condition] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    network: NetworkData | None = None


class HealthStatus(IntEnum):
    """The health states that the kubelet knows, with their numbers in the kubelet's API (DRAResourceHealth)."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """The health of one device (KEP-4680).

    device: name of the device.
    status: its state.
    message: reason of the state for people. The kubelet keeps 1024 bytes; more is cut.
    pool: pool of the device. None: the only pool of the driver that has a device of this name, else the node's own. A
        report about a device that is not published has no effect, and is logged.
    timeout: seconds until the state counts as Unknown if the driver does not report it again, from 1 to 2147483647.
    taints: the taints of an unhealthy device, each `name` or `name=value`: `xid=79` becomes a taint with the key
        `<driver>/xid` and the value `79`. Empty: the one taint `<driver>/unhealthy`.
    """

    device: str
    status: HealthStatus
    message: str = ""
    pool: str | None = None
    timeout: int = 30
    taints: Sequence[str] = ()
