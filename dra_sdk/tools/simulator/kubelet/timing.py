"""The kubelet's deadlines and periods, in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KubeletTiming:
    """Deadlines are the kubelet's own; pauses between attempts are shorter, so that tests need not wait (see `REAL`).

    Source: Kubernetes 1.36 pkg/kubelet/pluginmanager and pkg/kubelet/cm/dra.
    """

    dial: float = 10.0
    """To connect to a registration socket."""
    get_info: float = 1.0
    """For GetInfo."""
    notify: float = 5.0
    """For NotifyRegistrationStatus."""
    call: float = 45.0
    """For NodePrepareResources and NodeUnprepareResources."""
    wipe_delay: float = 30.0
    """From the loss of a driver to the deletion of its ResourceSlices."""
    wipe_retry: float = 1.0
    """Before the second attempt to delete ResourceSlices; doubles with each further one."""
    wipe_retry_last: float = 300.0
    """Longest pause between attempts to delete ResourceSlices."""
    health_timeout: float = 30.0
    """From a device's last health report to Unknown, where the report names no time of its own."""
    poll: float = 0.05
    """Between looks into the registration directory."""
    backoff_first: float = 0.1
    """Before the second attempt to register; doubles with each further one."""
    backoff_last: float = 2.0
    """Longest pause between attempts to register."""
    reconnect_first: float = 0.1
    """Before the second attempt to reconnect to a driver."""
    reconnect_last: float = 0.5
    """Longest pause between attempts to reconnect."""
    health_retry: float = 0.2
    """Between attempts to open a health stream."""
    pod_retry: float = 0.2
    """Between two attempts of a pod worker to sync its pod, where the first one failed."""
    reconcile: float = 60.0
    """Between looks for pods that are gone and still have prepared claims."""


REAL = KubeletTiming(
    poll=1.0,
    backoff_first=0.5,
    backoff_last=122.0,
    reconnect_first=1.0,
    reconnect_last=120.0,
    health_retry=5.0,
    pod_retry=10.0,
)
"""The kubelet's own pace throughout."""
