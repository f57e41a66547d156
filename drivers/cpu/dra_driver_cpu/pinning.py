"""Which CPUs and NUMA nodes each container of a node may use.

A container that uses claims has the CPUs of exactly the requests that it uses. All other containers, also those that
must run on every node, have the shared pool: the online CPUs that are neither reserved nor held by a claim.

Everything is computed from the claims that are held (the SDK keeps them on disk), the containers that the runtime
shows, and the CPUs that are online. Nothing is remembered here, so a restart of the driver, the kubelet, the runtime or
a container leads to the same CPUs, and a prepared CPU stays with its claim until the claim is unprepared.

Sources: cpuset(7); Documentation/admin-guide/cgroup-v2.rst; for the quota the kubelet's
`DisableCPUQuotaWithExclusiveCPUs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

from dra_sdk import (
    Container,
    ContainerAdjustment,
    ContainerResources,
    HeldClaim,
    HeldDevice,
    PermanentError,
    RetriableError,
)
from dra_sdk.hardware import CpuSet, Host, format_cpuset, optional, parse_cpuset, read_cpuset
from dra_sdk.hardware.numa import read_numa_cpus

VARIABLE: Final = "DRA_CPUSET_"
"""What the variables begin with that tell a container its CPUs; the claim's UID follows."""
MEMORY_VARIABLE: Final = "DRA_MEMS_"
"""What the variables of the driver `dra.memory` begin with. A container that has one gets its NUMA nodes from it."""
NO_LIMIT: Final = -1
"""The CFS quota of a container that may use its CPUs all the time."""


class EmptySharedPoolError(RetriableError):
    """A claim would leave no CPU for containers without claims; it may succeed when another claim has ended."""


class NotHeldError(PermanentError):
    """A container names a claim that holds no CPUs here, or that the container does not use."""


class NoCpuOnlineError(RetriableError):
    """All CPUs that a container may use are offline."""


def held_cpus(held: Iterable[HeldClaim]) -> CpuSet:
    """The CPUs of these claims, whether or not a container uses them now."""
    return _cpus(device for claim in held for device in claim.devices)


def check_shared_pool(online: CpuSet, reserved: CpuSet, held: Iterable[HeldClaim], picked: CpuSet) -> None:
    """Refuse a claim that picked the last CPUs: containers without claims could then run only on claimed ones.

    Raises EmptySharedPoolError.
    """
    others = held_cpus(held) & online
    if online - reserved - others - picked:
        return
    raise EmptySharedPoolError(
        f"{len(picked)} CPUs for this claim would leave none for containers without claims: "
        f"{len(online)} CPUs are online ({format_cpuset(online)}), {len(online & reserved)} of them are reserved, "
        f"{len(others)} are held by other claims; ask for fewer CPUs, or wait until another claim has ended"
    )


@dataclass(frozen=True)
class Pinning:
    """The CPUs of a node, and who holds them.

    online: the CPUs that are online.
    reserved: the CPUs that neither claims nor the shared pool get.
    memory_nodes: the online CPUs of each NUMA node that has memory.
    held: all claims that hold CPUs.
    """

    online: CpuSet
    reserved: CpuSet
    memory_nodes: Mapping[int, CpuSet]
    held: Sequence[HeldClaim]

    @classmethod
    def read(cls, node: Host, reserved: CpuSet, held: Sequence[HeldClaim]) -> Self:
        """The state of `node` now. Reads a few small files, so that a hook answers in less than a millisecond."""
        # Absent on a kernel without NUMA support.
        with_memory = optional(read_cpuset, node.sys / "devices/system/node/has_memory")
        nodes = read_numa_cpus(node)
        return cls(
            online=read_cpuset(node.sys / "devices/system/cpu/online"),
            reserved=reserved,
            memory_nodes={each: cpus for each, cpus in nodes.items() if with_memory is None or each in with_memory},
            held=held,
        )

    @cached_property
    def shared(self) -> CpuSet:
        """The CPUs of containers without claims; never those of a claim.

        `check_shared_pool` keeps at least one free CPU. If that went offline, the reserved CPUs take its place: the
        system's own work is disturbed, claims are not. Empty if these do not exist either.
        """
        free = self.online - held_cpus(self.held)
        return free - self.reserved or free

    def adjustment(self, container: Container) -> ContainerAdjustment:
        """What changes in a container that is being created.

        Raises NotHeldError if it names a claim that is not held or that it does not use, NoCpuOnlineError if it would
        have no CPU.
        """
        self._check_names(container)
        found = self._resources(container)
        if found is None:
            raise NoCpuOnlineError(f"{container}: of the CPUs that it may use, none is online")
        return ContainerAdjustment(resources=found)

    def synchronize(self, containers: Iterable[Container]) -> dict[str, ContainerResources]:
        """The resources of these containers, by id. A container without an online CPU is left out: it stays as it is.

        Nothing is refused here: a container that names a foreign claim has the shared pool.
        """
        found = {container.id: self._resources(container) for container in containers}
        return {name: resources for name, resources in found.items() if resources is not None}

    def _resources(self, container: Container) -> ContainerResources | None:
        """The resources of a container; None if no CPU of it is online. An empty list would mean: leave them alone."""
        held = {claim.uid for claim in self.held}
        devices = [device for claim in container.claims if claim.uid in held for device in claim.devices]
        if not devices:
            return ContainerResources(cpus=self.shared) if self.shared else None
        cpus = _cpus(devices) & self.online
        if not cpus:
            return None
        removed = all(device.data.get("quota", "remove") == "remove" for device in devices)
        return ContainerResources(
            cpus=cpus, mems=self._mems(container, devices, cpus), cpu_quota=NO_LIMIT if removed else None
        )

    def _mems(self, container: Container, devices: Sequence[HeldDevice], cpus: CpuSet) -> CpuSet | None:
        """The NUMA nodes of a container's CPUs; None if they stay as they are.

        The runtime refuses a container whose NUMA nodes two plugins set, so where `dra.memory` sets them, this driver
        does not.
        """
        if any(name.startswith(MEMORY_VARIABLE) for name in container.env):
            return None
        if any(device.data.get("memory", "local") != "local" for device in devices):
            return None
        return frozenset(node for node, local in self.memory_nodes.items() if local & cpus) or None

    def _check_names(self, container: Container) -> None:
        """The variables are those of the container's claims, and each of its claims is held."""
        held = {claim.uid for claim in self.held}
        used = {claim.uid for claim in container.claims}
        for name in container.env:
            uid = name.removeprefix(VARIABLE).partition("_")[0]
            if name.startswith(VARIABLE) and uid not in used:
                raise NotHeldError(f"{container}: variable {name} names claim {uid}, which it does not use")
        for claim in container.claims:
            if claim.uid not in held or not _cpus(claim.devices):
                raise NotHeldError(f"{container} uses {claim}, which holds no CPUs on this node")


def _cpus(devices: Iterable[HeldDevice]) -> CpuSet:
    """The CPUs of these devices. A device that is still being prepared has none yet."""
    return frozenset().union(*(parse_cpuset(device.data.get("cpus", "")) for device in devices))
