"""Which CPUs and NUMA nodes each container of a node may use.

A container that uses claims has the CPUs of exactly the requests that it uses. All other containers, also those that
must run on every node, have the shared pool: the online CPUs that are neither reserved nor held by a claim. CPUs that
the kernel isolates are in it only while it has no others, and reserved CPUs while it would be empty without them.

Everything is computed from the claims that are held (the SDK keeps them on disk), the containers that the runtime
shows, and the CPUs that are online. Nothing is remembered here, so a restart of the driver, the kubelet, the runtime or
a container leads to the same CPUs, and a prepared CPU stays with its claim until the claim is unprepared.

Sources: cpuset(7); Documentation/admin-guide/cgroup-v2.rst; for the quota the kubelet's
`DisableCPUQuotaWithExclusiveCPUs`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

from dra_driver_cpu.allocatable import held_cpus, read_usable_cpus
from dra_driver_cpu.config import CPUS, MEMORY, QUOTA
from dra_sdk import AllocatedDevice, Claim, ContainerEdits, HardwareError, HeldClaim, HeldDevice, RetriableError
from dra_sdk.hardware import CpuSet, Host, format_cpuset, parse_cpuset, read_cpuset, read_optional
from dra_sdk.hardware.container_cgroup import ContainerCgroup
from dra_sdk.hardware.numa import read_numa_cpus
from dra_sdk.nri import Container, ContainerResources, PodSandbox

log = logging.getLogger(__name__)
MEMORY_VARIABLE: Final = "DRA_MEMS_"
"""What the variables of the driver `dra.memory` begin with. A container that has one gets its NUMA nodes from it."""
NO_LIMIT: Final = -1
"""The CFS quota of a container that may use its CPUs all the time."""


class EmptySharedPoolError(RetriableError):
    """A claim would leave no CPU for containers without claims; it may succeed when another claim has ended."""


class NoCpuError(RetriableError):
    """All CPUs that a container may use are offline, or claims hold all CPUs. An empty list would mean no limit."""


def check_shared_pool(online: CpuSet, held: CpuSet, picked: CpuSet) -> None:
    """Refuse a claim that picked the last CPUs: containers without claims could then run only on claimed ones.

    `held` are the CPUs of other claims. Not all CPUs are published, so this happens only while an earlier claim holds
    the CPU that is kept back now. Raises EmptySharedPoolError.
    """
    if picked and not online - held - picked:
        others = online & held
        raise EmptySharedPoolError(
            f"{len(picked)} CPUs for this claim ({format_cpuset(picked)}) would leave none for containers without "
            f"claims: {len(online)} CPUs are online ({format_cpuset(online)}), none of them is reserved, other claims "
            f"hold {len(others)} ({format_cpuset(others) or 'none'}); reserve a CPU, ask for fewer, or wait until "
            f"another claim has ended"
        )


def shared_pool(online: CpuSet, reserved: CpuSet, isolated: CpuSet, held: CpuSet) -> CpuSet:
    """Return the CPUs of containers without claims; never those that claims hold.

    If nothing else is free, it is the reserved CPUs: the system's own work is disturbed, claims are not. Empty only if
    the last free CPU went offline, because one is kept back, or if the pool is optional.
    """
    free = online - held
    unreserved = free - reserved
    return unreserved - isolated or unreserved or free


@dataclass(frozen=True)
class Pinning:
    """The CPUs of a node, and who holds them.

    online: the CPUs that are online.
    reserved: the CPUs that no claim gets, and the shared pool only if it would be empty.
    isolated: the CPUs that the kernel isolates.
    memory_nodes: the online CPUs of each NUMA node that has memory; empty while no claim is held.
    held: all claims that hold CPUs.
    kept: the CPUs of containers whose claims are not known.
    """

    online: CpuSet
    reserved: CpuSet
    isolated: CpuSet
    memory_nodes: Mapping[int, CpuSet]
    held: Sequence[HeldClaim]
    kept: CpuSet = frozenset()

    @classmethod
    def read(
        cls, node: Host, reserved: CpuSet, held: Sequence[HeldClaim], containers: Iterable[Container] = ()
    ) -> Self:
        """Read the state of `node`: a few small files, so that a hook answers in less than a millisecond."""
        root = node.sys / "devices/system"
        online = read_cpuset(root / "cpu/online")
        numa = read_numa_cpus(node, online) if held else {}  # they are for containers with claims only
        # It is absent without NUMA support.
        with_memory = read_optional(read_cpuset, root / "node/has_memory") if numa else None
        return cls(
            online=read_usable_cpus(node, online),
            reserved=reserved,
            isolated=read_optional(read_cpuset, root / "cpu/isolated") or frozenset(),
            memory_nodes={node: cpus for node, cpus in numa.items() if with_memory is None or node in with_memory},
            held=held,
            kept=frozenset().union(
                *(container.resources.cpus or () for container in containers if _is_damaged(container))
            ),
        )

    @cached_property
    def shared(self) -> CpuSet:
        """The CPUs of containers without claims."""
        return shared_pool(self.online, self.reserved, self.isolated, held_cpus(self.held) | self.kept)

    @cached_property
    def _shared_resources(self) -> ContainerResources | NoCpuError:
        """Those of every container without claims: one object, so that it is checked once for hundreds of them."""
        return ContainerResources(cpus=self.shared) if self.shared else NoCpuError("claims hold all online CPUs")

    def synchronize(self, containers: Iterable[Container]) -> dict[str, ContainerResources | NoCpuError]:
        """Return the resources of these containers, by id; an error for one that would have no CPU.

        A container of a claim whose state file is damaged keeps its CPUs, and no other container has these.
        """
        return {container.id: self._resources(container) for container in containers if not _is_damaged(container)}

    def _resources(self, container: Container) -> ContainerResources | NoCpuError:
        devices = [device for claim in container.claims for device in claim.devices]
        if not devices:
            return self._shared_resources
        cpus = _cpus(devices) & self.online
        if not cpus:
            return NoCpuError("of the CPUs of its claims, none is online")
        quota = NO_LIMIT if all(map(_removes_quota, devices)) else None
        return ContainerResources(cpus=cpus, mems=self._mems(container, devices, cpus), cpu_quota=quota)

    def _mems(self, container: Container, devices: Sequence[HeldDevice], cpus: CpuSet) -> CpuSet | None:
        """Return the NUMA nodes of a container's CPUs; None if they stay as they are.

        The runtime refuses a container whose NUMA nodes two plugins set, so where `dra.memory` sets them, this driver
        does not.
        """
        if any(name.startswith(MEMORY_VARIABLE) for name in container.env):
            return None
        if any(device.data.get(MEMORY, "local") != "local" for device in devices):
            return None
        return frozenset(node for node, local in self.memory_nodes.items() if local & cpus) or None


def request_edits(
    claim: Claim[Any], device: AllocatedDevice[Any], variable: str, numbers: CpuSet
) -> tuple[ContainerEdits, str]:
    """Return the environment and the CDI name of a request. They contain its name only if the claim has several.

    variable: what the name of the variable begins with.
    numbers: its value, CPUs or NUMA nodes.
    """
    several = len({other.base_request for other in claim.devices}) > 1
    suffix = f"{claim.uid}_{device.base_request}" if several else claim.uid
    return ContainerEdits(env={f"{variable}{suffix}": format_cpuset(numbers)}), f"claim-{suffix}"


def remove_pod_quota(pod: PodSandbox, node: Host) -> None:
    """Remove the CFS quota of a pod whose claims remove that of its containers, as the kubelet's static policy does.

    The kubelet limits the pod to the sum of its containers' limits, which would slow exclusive CPUs down all the same.
    If that fails, the pod is slower, so it is logged only.
    """
    if pod.cgroup_parent and any(_removes_quota(device) for claim in pod.claims for device in claim.devices):
        try:
            ContainerCgroup(node, pod.cgroup_parent).write(ContainerResources(cpu_quota=NO_LIMIT))
        except HardwareError as error:
            log.warning("%s keeps its CPU quota: %s", pod, error)


def _removes_quota(device: HeldDevice) -> bool:
    return bool(device.data.get(QUOTA, "remove") == "remove")


def _is_damaged(container: Container) -> bool:
    return any(claim.damaged for claim in container.claims)


def _cpus(devices: Iterable[HeldDevice]) -> CpuSet:
    """Return the CPUs of these devices. A device that is still being prepared has none yet."""
    return frozenset().union(*(parse_cpuset(device.data.get(CPUS, "")) for device in devices))
