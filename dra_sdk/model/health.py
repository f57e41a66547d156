"""The health of a device as its driver sees it.

Source: KEP-4680, DRAResourceHealth. The kubelet shows it in the pod's status; it does not affect scheduling;
taints do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class HealthStatus(IntEnum):
    """The three states the kubelet knows; the numbers are those on the wire."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """One device's state. `pool` None means the node's own pool; `timeout` in seconds is how long it stays believed."""

    device: str
    status: HealthStatus
    message: str = ""
    pool: str | None = None
    timeout: int = 30
