"""A cluster in one process for testing DRA drivers: API server, scheduler, kubelet and CDI injection.

Source: Kubernetes 1.34 to 1.37; the Container Device Interface specification 1.1 and the OCI runtime specification.
"""

from __future__ import annotations

from dra_sdk.model.claim import ClaimRef
from dra_sdk.tools.simulator.cluster import EmbeddedCluster
from dra_sdk.tools.simulator.faults import Delay, FaultRule, Reject, Reset
from dra_sdk.tools.simulator.kubelet.pods import RunningPod
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.tools.simulator.resources import CATALOG, Catalog, ResourceType
from dra_sdk.tools.simulator.scheduler import AllocatedDevice, NotScheduledError
from dra_sdk.tools.simulator.statuses import StatusError

__all__ = [
    "CATALOG",
    "AllocatedDevice",
    "Catalog",
    "ClaimRef",
    "Delay",
    "EmbeddedCluster",
    "FaultRule",
    "KubeletTiming",
    "NotScheduledError",
    "Reject",
    "Reset",
    "ResourceType",
    "RunningPod",
    "StatusError",
]
