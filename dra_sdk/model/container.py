"""Pods and containers as the container runtime shows them to a driver by NRI, and what a driver may change in them.

Source: containerd/nri pkg/api/api.proto, messages PodSandbox, Container, LinuxResources, ContainerAdjustment and
ContainerUpdate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dra_sdk.model.claim import HeldClaim, HeldDevice
from dra_sdk.model.status import DeviceStatus

Report = Callable[[HeldClaim, HeldDevice, DeviceStatus], None]


@dataclass(frozen=True, slots=True)
class ContainerResources:
    """Resources of a container; None, or a missing page size, leaves the value as it is.

    cpus: the CPUs that it may run on (`cpuset.cpus`).
    mems: the NUMA nodes of which it may use memory (`cpuset.mems`).
    cpu_quota: microseconds of CPU time in each period; -1 for no limit.
    hugepage_limits: bytes of huge pages by page size, such as `2MB` or `1GB`.
    """

    cpus: frozenset[int] | None = None
    mems: frozenset[int] | None = None
    cpu_quota: int | None = None
    hugepage_limits: Mapping[str, int] = field(default_factory=dict)

    def changed(self, to: ContainerResources) -> ContainerResources:
        """Return these resources with the values of `to` where it has some."""
        return ContainerResources(
            self.cpus if to.cpus is None else to.cpus,
            self.mems if to.mems is None else to.mems,
            self.cpu_quota if to.cpu_quota is None else to.cpu_quota,
            {**self.hugepage_limits, **to.hugepage_limits},
        )

    def different(self, wanted: ContainerResources) -> ContainerResources | None:
        """Return the values of `wanted` that differ from these; None if none does."""
        mine = self.hugepage_limits
        cpus = None if wanted.cpus == self.cpus else wanted.cpus
        mems = None if wanted.mems == self.mems else wanted.mems
        quota = None if wanted.cpu_quota == self.cpu_quota else wanted.cpu_quota
        limits = {size: limit for size, limit in wanted.hugepage_limits.items() if mine.get(size) != limit}
        if cpus is None and mems is None and quota is None and not limits:
            return None
        return ContainerResources(cpus, mems, quota, limits)


@dataclass(frozen=True, slots=True)
class PodSandbox:
    """A pod's sandbox.

    id: the runtime's id of the sandbox.
    namespace: the pod's namespace.
    name: the pod's name.
    uid: the pod's UID.
    labels: the pod's labels.
    annotations: the pod's annotations.
    claims: the claims of this driver that the pod uses: those that are reserved for it, and those of its PodGroup once
        a container uses them. For a pod that joins a claim which is prepared already, the claim is read again.
    cgroup_parent: the cgroup of the pod, as the kubelet states it to the runtime.
    network_namespace: the path of the pod's network namespace; empty if it has the host's.
    report: replaces the status of a device of one of `claims` in the claim's `status.devices`: what `dra_prepare`
        reported is a plan, and a hook that has set up the device in the pod, or failed to, knows more. Never waits: the
        SDK writes the status after the runtime has its answer, and again after a restart. Call it before an exception,
        too.
    """

    id: str
    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    claims: Sequence[HeldClaim] = ()
    cgroup_parent: str = ""
    network_namespace: str = ""
    report: Report = field(repr=False, compare=False, default=lambda _claim, _device, _status: None)

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Container:
    """A container.

    id: the runtime's id of the container.
    name: its name in the pod.
    pod: its pod.
    claims: the claims of this driver whose devices it uses. Each has only the devices that this container uses: those
        of the requests that it names.
    env: its environment, with that of CDI devices.
    resources: its resources as the runtime knows them.
    cgroup: the path of its cgroup as the runtime states it; empty if it does not.
    """

    id: str
    name: str
    pod: PodSandbox
    claims: Sequence[HeldClaim] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    resources: ContainerResources = field(default_factory=ContainerResources)
    cgroup: str = ""

    def __str__(self) -> str:
        return f"container {self.name} of {self.pod}"


@dataclass(frozen=True, slots=True)
class ContainerAdjustment:
    """What changes in a container that is being created, beyond what CDI does for its devices.

    resources: its resources.
    env: variables that are set.
    annotations: annotations that are set.
    """

    resources: ContainerResources = field(default_factory=ContainerResources)
    env: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
