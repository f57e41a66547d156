"""A kubelet emulator: what Kubernetes 1.36's kubelet does with DRA drivers, over the real sockets."""

from __future__ import annotations

from dra_sdk.tools.simulator.kubelet.claims import ClaimInfo
from dra_sdk.tools.simulator.kubelet.emulator import HealthMode, KubeletEmulator
from dra_sdk.tools.simulator.kubelet.errors import (
    CheckpointError,
    DriverCallError,
    KubeletError,
    NotRegisteredError,
    PodClaimError,
    RegistrationError,
    ResponseError,
    StoppedError,
)
from dra_sdk.tools.simulator.kubelet.health import DeviceHealth
from dra_sdk.tools.simulator.kubelet.plugins import PluginInfo
from dra_sdk.tools.simulator.kubelet.pods import ContainerRequest, RunningPod
from dra_sdk.tools.simulator.kubelet.records import Call, ClaimRef, Finding, PreparedDevice
from dra_sdk.tools.simulator.kubelet.timing import REAL, KubeletTiming

__all__ = [
    "REAL",
    "Call",
    "CheckpointError",
    "ClaimInfo",
    "ClaimRef",
    "ContainerRequest",
    "DeviceHealth",
    "DriverCallError",
    "Finding",
    "HealthMode",
    "KubeletEmulator",
    "KubeletError",
    "KubeletTiming",
    "NotRegisteredError",
    "PluginInfo",
    "PodClaimError",
    "PreparedDevice",
    "RegistrationError",
    "ResponseError",
    "RunningPod",
    "StoppedError",
]
