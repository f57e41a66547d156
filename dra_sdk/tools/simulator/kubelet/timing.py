"""The kubelet's deadlines and periods."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KubeletTiming:
    """Deadlines and periods in seconds.

    By default deadlines are the kubelet's own, and pauses between attempts are shorter, so that tests are quick.
    Source: Kubernetes 1.36 pkg/kubelet/pluginmanager, pkg/kubelet/cm/dra, pkg/kubelet/pod_workers.go.

    dial: to connect to a registration socket.
    get_info: for GetInfo.
    notify: for NotifyRegistrationStatus.
    call: for NodePrepareResources and NodeUnprepareResources.
    wipe_delay: from the loss of a driver to the deletion of its ResourceSlices.
    wipe_retry: before the second attempt to delete ResourceSlices; doubles with each further one.
    wipe_retry_last: the longest pause between attempts to delete ResourceSlices.
    health_timeout: how long a health report is valid that names no time of its own.
    poll: between two reads of the registration directory.
    backoff_first: before the second attempt to register; doubles with each further one.
    backoff_last: the longest pause between attempts to register.
    reconnect_first: before the second attempt to connect to a driver again.
    reconnect_last: the longest pause between attempts to connect again.
    health_retry: between attempts to open a health stream.
    pod_retry: between attempts of a pod worker to sync its pod.
    reconcile: between searches for deleted pods that still have prepared claims.
    """

    dial: float = 10.0
    get_info: float = 1.0
    notify: float = 5.0
    call: float = 45.0
    wipe_delay: float = 30.0
    wipe_retry: float = 1.0
    wipe_retry_last: float = 300.0
    health_timeout: float = 30.0
    poll: float = 0.05
    backoff_first: float = 0.1
    backoff_last: float = 2.0
    reconnect_first: float = 0.1
    reconnect_last: float = 0.5
    health_retry: float = 0.2
    pod_retry: float = 0.2
    reconcile: float = 60.0
