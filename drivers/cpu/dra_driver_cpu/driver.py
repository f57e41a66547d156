"""The driver: publishes CPUs, picks exclusive ones for each claim, and gives them to its containers.

The driver keeps no state of its own: it reads from the held claims which CPUs are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Event, Lock

from dra_driver_cpu.allocatable import allocatable_cpus, cpus_of, held_cpus, read_topology, read_usable_cpus
from dra_driver_cpu.config import CPU_VARIABLE, CPUS, CpuConfig
from dra_driver_cpu.devices import CAPACITY, cpu_groups, cpu_pool
from dra_driver_cpu.health import CpuHealth
from dra_driver_cpu.kubelet_policy import refuse_static_policy
from dra_driver_cpu.metrics import cpu_gauges
from dra_driver_cpu.pick import CoreAlignmentError, NotEnoughCpusError, pick
from dra_driver_cpu.picture import draw
from dra_driver_cpu.pinning import Pinning, check_shared_pool, remove_pod_quota, request_edits
from dra_driver_cpu.settings import CpuSettings
from dra_sdk import (
    AllocatedDevice,
    Claim,
    DeviceHealth,
    DriverInfo,
    Gauge,
    HeldClaim,
    HeldDevice,
    Node,
    PermanentError,
    PreparedDevice,
    ResourcePool,
    RetriableError,
)
from dra_sdk.hardware import (
    CpuSet,
    CpuTopology,
    format_cpuset,
    read_cpuset,
    read_if_exists,
    read_pci_roots,
    uevents,
)
from dra_sdk.hardware.uevents import KernelUevents, UeventSource
from dra_sdk.nri import Container, ContainerResources, PodSandbox

_LONGEST_STRING = 64  # bytes of an attribute's value
_HOLDERS = 5  # claims that an error names


class CpuDriver:
    """DRA driver `dra.cpu`. Without `settings` it has their defaults.

    `source` opens the uevents by which it notices CPUs that go online or offline.
    """

    settings_class = CpuSettings

    def __init__(
        self, settings: CpuSettings | None = None, *, source: Callable[[], UeventSource] = KernelUevents
    ) -> None:
        self._settings = settings or CpuSettings()
        self._source = source
        self._reserving = Lock()
        self._health: CpuHealth | None = None
        self._topology: CpuTopology | None = None  # as it was read last

    def dra_driver_info(self) -> DriverInfo:
        """Return name, configuration and CDI kind."""
        return DriverInfo("dra.cpu", configs=[CpuConfig], cdi_kind="dra.k8s.io/cpu", metadata=True)

    def dra_discover(self, node: Node) -> Iterator[ResourcePool]:
        """Yield the node's own pool. Raise an error, and publish nothing, if the kubelet gives CPUs away by itself."""
        refuse_static_policy(node, self._settings.kubelet_dir)
        roots = read_pci_roots(node) if self._settings.expose_pcie_roots else ()
        if self._settings.isolated_cpus != "include":  # claims would get the wrong CPUs
            read_if_exists(read_cpuset, node.sys / "devices/system/cpu/isolated")
        self._topology = read_topology(node)
        yield cpu_pool(node.name, self._topology, self._settings, roots)

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Notice CPUs that go online or offline, by events of the kernel."""
        uevents.watch(lambda: read_usable_cpus(node), changed, stop, {"cpu"}, source=self._source)

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        """Report devices whose CPUs have gone offline."""
        if self._health is None:  # it is kept, because the hook starts again after an error
            shared = self._settings.device_mode == "grouped"
            self._health = CpuHealth(node, lambda: cpu_groups(read_topology(node), self._settings), shared=shared)
        yield from self._health.watch(stop)

    def dra_prepare(self, claim: Claim[CpuConfig]) -> Iterator[PreparedDevice]:
        """Pick CPUs for every device, then put the CPUs of each request into the environment of its containers."""
        topology = self._current_topology(claim.node)
        others, picked = claim.held(), list[CpuSet]()
        held = held_cpus(others)
        for device in claim.devices:
            try:
                picked.append(self._pick(device, topology, held.union(*picked)))
            except NotEnoughCpusError as error:
                raise NotEnoughCpusError(f"device {device.name}: {error}{_holders(others, device.hardware)}") from error
        if self._settings.shared_pool == "required":
            self._leave_shared_cpus(claim, topology, held, picked)
        for device, cpus in zip(claim.devices, picked, strict=True):
            edits, name = request_edits(claim, device, CPU_VARIABLE, _cpus_of_request(claim, device, picked))
            yield device.prepared(edits, data=device.config.data(cpus), cdi_name=name, metadata=_metadata(cpus))

    def dra_run_pod_sandbox(self, pod: PodSandbox, node: Node) -> None:
        """Remove the CFS quota of the pod as a whole if its claims remove that of containers."""
        remove_pod_quota(pod, node)

    def dra_synchronize(
        self, containers: Sequence[Container], held: Sequence[HeldClaim], node: Node
    ) -> Mapping[str, ContainerResources | RetriableError]:
        """Pin all containers: the shared pool shrinks and grows with the claims."""
        return Pinning.read(node, self._settings.reserved_cpus, held, containers).synchronize(containers)

    def dra_top(self, node: Node, held: Sequence[HeldClaim]) -> Iterator[str]:
        """Draw who has which CPU. A claim that is only planned has those that it would get now, with the defaults."""
        topology = read_topology(node)
        claims = {f"{claim.namespace}/{claim.name}": cpus_of(claim) for claim in held}
        planned = [
            (f"{claim.namespace}/{claim.name}", device)
            for claim in held
            for device in claim.devices
            if claim.complete and not device.data and not device.admin_access
        ]
        groups = {group.name: group.cpus for group in cpu_groups(topology, self._settings)} if planned else {}
        for name, device in planned:
            if cpus := groups.get(device.name):
                free, policy = cpus.difference(*claims.values()), CpuConfig().policy_of(self._settings)
                with suppress(NotEnoughCpusError, CoreAlignmentError):  # it was planned with other settings
                    claims[name] |= pick(topology, free, _number(device, cpus), policy)
        return draw(topology, claims, self._settings.reserved_cpus)

    def dra_metrics(self, node: Node, held: Sequence[HeldClaim]) -> Iterator[Gauge]:
        """Measure how many CPUs claims have and can get, and who has the others."""
        return cpu_gauges(self._current_topology(node), self._settings, held)

    def _current_topology(self, node: Node) -> CpuTopology:
        """Return the CPUs of the node; those that were read last, if the same ones are online.

        Reading them all takes a dozen files for each CPU. How CPUs share cores and caches changes only with them.
        """
        topology = self._topology
        if topology is None or topology.online != read_usable_cpus(node):
            topology = self._topology = read_topology(node)
        return topology

    def _pick(self, device: AllocatedDevice[CpuConfig], topology: CpuTopology, taken: CpuSet) -> CpuSet:
        """Pick the CPUs of one device. One with admin access has them all, and takes them from no other."""
        online: CpuSet = device.hardware & topology.online
        if device.admin_access:
            return online
        policy = device.config.policy_of(self._settings)
        return pick(topology, online - taken, _number(device, device.hardware), policy)

    def _leave_shared_cpus(
        self, claim: Claim[CpuConfig], topology: CpuTopology, held: CpuSet, picked: Sequence[CpuSet]
    ) -> None:
        """Raise EmptySharedPoolError if a claim that picked these CPUs leaves none for containers without claims.

        No claim picks a CPU that is not published. But the one that is kept back changes when it goes offline, or with
        the settings, and an earlier claim may hold it until it ends. Then two claims could take the last CPUs at the
        same time: they are recorded first.
        """
        devices = zip(claim.devices, picked, strict=True)
        taken: CpuSet = frozenset().union(*(cpus for device, cpus in devices if not device.admin_access))
        unpublished = topology.online - allocatable_cpus(topology, self._settings)
        if not taken or unpublished - held:
            return
        with self._reserving:
            claim.reserve({CPUS: format_cpuset(taken)})
            check_shared_pool(topology.online, held_cpus(claim.held()), taken)


def _number(device: AllocatedDevice[CpuConfig] | HeldDevice, cpus: CpuSet) -> int:
    """Return how many CPUs the scheduler granted; all `cpus` of a device that cannot be consumed in parts."""
    granted = device.consumed_capacity.get(CAPACITY)
    if granted is None:
        return len(cpus)
    if granted.value < 1 or granted.value.denominator != 1:
        raise PermanentError(f"device {device.name}: {CAPACITY} must be a whole number of CPUs from 1, is {granted}")
    return int(granted)


def _holders(others: Sequence[HeldClaim], cpus: CpuSet) -> str:
    """Return who has CPUs of a device. The scheduler may know better: a pod that was deleted still ends."""
    held = [f"{other} has {format_cpuset(both)}" for other in others if (both := cpus_of(other) & cpus)]
    more = f" and {len(held) - _HOLDERS} more claims" if len(held) > _HOLDERS else ""
    return f"; {', '.join(held[:_HOLDERS])}{more}" if held else ""


def _cpus_of_request(claim: Claim[CpuConfig], device: AllocatedDevice[CpuConfig], picked: Sequence[CpuSet]) -> CpuSet:
    devices = zip(claim.devices, picked, strict=True)
    return frozenset().union(*(cpus for other, cpus in devices if other.base_request == device.base_request))


def _metadata(cpus: CpuSet) -> dict[str, int | str | list[str]]:
    """Return what the file for containers says beyond the device's attributes (KEP-5304).

    A CPU list that is longer than an attribute may be is a list of several, each with some of the CPUs.
    """
    text = format_cpuset(cpus)
    parts: list[str] = []
    for cpus_range in text.split(","):
        if parts and len(parts[-1]) + 1 + len(cpus_range) <= _LONGEST_STRING:
            parts[-1] += f",{cpus_range}"
        else:
            parts.append(cpus_range)
    return {"dra.cpu/allocatedNumCPUs": len(cpus), "dra.cpu/cpuset": parts if len(parts) > 1 else text}
