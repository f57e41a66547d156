"""A kubelet emulator: what Kubernetes 1.36's kubelet does with DRA drivers, over the real sockets.

Source: Kubernetes 1.36 pkg/kubelet/pluginmanager and pkg/kubelet/cm/dra.
"""

from __future__ import annotations

from dra_sdk.tools.simulator.kubelet.claims import ClaimInfo
from dra_sdk.tools.simulator.kubelet.emulator import HealthMode, KubeletEmulator
from dra_sdk.tools.simulator.kubelet.health import ResourceHealth
from dra_sdk.tools.simulator.kubelet.plugins import PluginInfo
from dra_sdk.tools.simulator.kubelet.pods import ContainerRequest, RunningPod
from dra_sdk.tools.simulator.kubelet.records import (
    Call,
    CheckpointError,
    ClaimRef,
    DriverCallError,
    Finding,
    KubeletError,
    NotRegisteredError,
    PodClaimError,
    PreparedDevice,
    RegistrationError,
    ResponseError,
    StoppedError,
)
from dra_sdk.tools.simulator.kubelet.timing import REAL, KubeletTiming

__all__ = [
    "REAL",
    "Call",
    "CheckpointError",
    "ClaimInfo",
    "ClaimRef",
    "ContainerRequest",
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
    "ResourceHealth",
    "ResponseError",
    "RunningPod",
    "StoppedError",
]
