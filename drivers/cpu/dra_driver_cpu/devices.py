"""The devices that a machine is published as, in each mode.

| mode | a device is | claims take |
|---|---|---|
| grouped | a NUMA node, socket, L3 cache, or the machine | a number of its CPUs |
| individual | a CPU | the device |
| partitionable | a core, an L3 cache or a NUMA node, all of them at the same time | the device |

Partitionable devices contain each other, so they take from shared counters (KEP-4815). Each L3 cache of a NUMA node has
a counter with the number of its cores. A core takes one of it, the cache takes all, and the node takes all of all its
caches. The API allows 32 counters in a set: where a NUMA node has more caches, its L3 devices are left out and its
cores are counted together.

Names contain the numbers of the kernel, so a device keeps its name when CPUs go offline or are reserved: that of the
NUMA node, socket or L3 cache, of the CPU, or those of the core and its socket. Some kernels give several cores the same
numbers (ARM, where they start again in each cluster); these cores have the number of their lowest CPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Final, Literal

from dra_driver_cpu.allocatable import allocatable_cpus
from dra_driver_cpu.settings import CpuSettings
from dra_sdk import Capacity, CounterConsumption, CounterSet, Device, DraError, NodeAllocatable, ResourcePool
from dra_sdk.hardware import NUMA_NODE, PCIE_ROOT, CpuSet, CpuTopology, PciRoot
from dra_sdk.hardware.sharing import Sharing

CAPACITY: Final = "dra.cpu/cpu"
Kind = Literal["machine", "socket", "numanode", "l3cache", "core", "cpu"]
_NAMES: Final[Mapping[Kind, str]] = {  # of all but cores
    "machine": "cpudevmachine",
    "socket": "cpudevsocket",
    "numanode": "cpudevnuma",
    "l3cache": "cpudevl3cache",
    "cpu": "cpudev",
}
_COUNTERS_PER_SET: Final = 32
_NO_L3: Final = -1


@dataclass(frozen=True, slots=True)
class CpuGroup:
    """CPUs that are one device.

    name: the device's name.
    kind: what the CPUs have in common.
    cpus: those of them that claims can get; never empty.
    """

    name: str
    kind: Kind
    cpus: CpuSet


def cpu_groups(topology: CpuTopology, settings: CpuSettings) -> list[CpuGroup]:
    """Return all groups that are published, in the order in which the scheduler tries them: small before large.

    A group of which claims can get no CPU is left out. Raises the errors of `allocatable_cpus`, and DraError if the
    machine has no L3 cache to group by.
    """
    cpus = allocatable_cpus(topology, settings)
    if settings.device_mode == "individual":
        return list(_groups("cpu", {cpu: frozenset({cpu}) for cpu in _by_core(topology)}, cpus))
    if settings.device_mode == "partitionable":
        kinds: Sequence[Kind] = ("l3cache", "numanode")
        around = [group for kind in kinds for group in _groups(kind, _whole_cores_of(kind, topology), cpus)]
        return [*_cores(topology, cpus), *around]
    if settings.group_by == "l3cache" and not topology.l3_caches:
        raise DraError("groupBy is l3cache, and this machine has no L3 cache, or its kernel does not report it")
    return list(_groups(settings.group_by, _parts(settings.group_by, topology), cpus))


def cpu_pool(name: str, topology: CpuTopology, settings: CpuSettings, roots: Sequence[PciRoot] = ()) -> ResourcePool:
    """Return the pool `name` with all devices. Each has its CPUs as `hardware`. Raises the errors of `cpu_groups`.

    roots: the PCI root complexes, for the attribute `pcieRoot`; empty if it is not published.
    """
    groups = cpu_groups(topology, settings)
    if settings.device_mode != "partitionable":
        return ResourcePool(name, [_device(group, topology, settings, roots) for group in groups])
    counters = _CoreCounters(topology, [group for group in groups if group.kind == "core"])
    devices = [
        _device(group, topology, settings, roots, counters.taken_by(group.cpus))
        for group in groups
        if group.kind != "l3cache" or counters.count_caches_of(group.cpus)
    ]
    cores = [group.name for group in groups if group.kind == "core"]
    return ResourcePool(name, devices, counters.sets(), without_counters=cores)


# -- groups


def _groups(kind: Kind, parts: Mapping[int, CpuSet], cpus: CpuSet) -> Iterator[CpuGroup]:
    for number, part in parts.items():
        if part & cpus:
            name = _NAMES[kind] if kind == "machine" else f"{_NAMES[kind]}{number:03d}"
            yield CpuGroup(name, kind, part & cpus)


def _cores(topology: CpuTopology, cpus: CpuSet) -> Iterator[CpuGroup]:
    numbers = {first: (topology.by_id[first].socket, topology.by_id[first].core_id) for first in topology.cores}
    alike = Counter(numbers.values())
    for first, threads in topology.cores.items():
        if threads & cpus:
            socket, number = numbers[first]
            is_unique = alike[socket, number] == 1
            name = f"cpudevsocket{socket:03d}core{number:03d}" if is_unique else f"cpudevcore{first:03d}"
            yield CpuGroup(name, "core", threads & cpus)


def _parts(kind: Kind, topology: CpuTopology) -> Mapping[int, CpuSet]:
    if kind == "machine":
        return {0: topology.online}
    if kind == "socket":
        return topology.sockets
    return topology.numa_nodes if kind == "numanode" else topology.l3_caches


def _by_core(topology: CpuTopology) -> Iterator[int]:
    """Yield all CPUs, the threads of a core one after the other, so that the scheduler's first fit shares few cores."""
    for core in topology.cores.values():
        yield from sorted(core)


def _whole_cores_of(kind: Kind, topology: CpuTopology) -> dict[int, CpuSet]:
    """Return the L3 caches or NUMA nodes. A core whose threads lie in two parts belongs to that of its lowest CPU."""
    parts: dict[int, CpuSet] = {}
    for first, threads in topology.cores.items():
        cpu = topology.by_id[first]
        part = cpu.l3 if kind == "l3cache" else cpu.numa_node
        if part is not None:
            parts[part] = parts.get(part, frozenset()) | threads
    return dict(sorted(parts.items()))


# -- devices


def _device(
    group: CpuGroup,
    topology: CpuTopology,
    settings: CpuSettings,
    roots: Sequence[PciRoot],
    consumes: Sequence[CounterConsumption] = (),
) -> Device:
    attributes: dict[str, bool | int | str | list[str]] = dict(_attributes(group, topology))
    if settings.device_mode == "partitionable":
        attributes["groupBy"] = group.kind
    if settings.expose_pcie_roots and (near := [root.name for root in roots if root.cpus & group.cpus]):
        attributes[PCIE_ROOT] = near
    whole = settings.device_mode != "grouped"
    capacity = {} if group.kind == "cpu" else {CAPACITY: Capacity(len(group.cpus))}
    mapping = NodeAllocatable(multiplier=len(group.cpus)) if whole else NodeAllocatable(capacity_key=CAPACITY)
    device = Device(
        group.name,
        attributes=attributes,
        capacity=capacity,
        consumes=consumes,
        node_allocatable={"cpu": mapping} if settings.node_allocatable else {},
        hardware=group.cpus,
    )
    return device if whole else _sharing(group.cpus, topology, full_cores=settings.full_cores).apply(device)


def _attributes(group: CpuGroup, topology: CpuTopology) -> Iterator[tuple[str, bool | int | str]]:
    """Yield what is true of all CPUs of a group: an attribute in which they differ is left out."""
    cpus = [topology.by_id[cpu] for cpu in sorted(group.cpus)]
    first = cpus[0]
    if {cpu.numa_node for cpu in cpus} == {first.numa_node}:
        yield NUMA_NODE, first.numa_node
        yield "numaNodeID", first.numa_node  # older names, by which existing claims align
        yield "dra.net/numaNode", first.numa_node
    if {cpu.socket for cpu in cpus} == {first.socket}:
        yield "socketID", first.socket
    if {cpu.l3 for cpu in cpus} == {first.l3}:
        yield "cacheL3ID", _NO_L3 if first.l3 is None else first.l3
    if {cpu.core_type for cpu in cpus} == {first.core_type}:
        yield "coreType", first.core_type
    yield "smtEnabled", topology.smt
    if group.kind in {"cpu", "core"}:
        yield "coreID", first.core_id
        yield "isolated", group.cpus <= topology.isolated
        yield "nohzFull", group.cpus <= topology.nohz_full
    if group.kind == "cpu":
        yield "cpuID", first.id
    else:
        yield "numCPUs", len(cpus)


def _sharing(cpus: CpuSet, topology: CpuTopology, *, full_cores: bool) -> Sharing:
    """Count single CPUs, or with `full_cores` the threads of a core: 1 if cores have different numbers of them.

    Undivided, a request without a number would take all CPUs, and one for 1500m would fail only at prepare.
    """
    step = gcd(*(len(topology.siblings(cpu)) for cpu in cpus)) if full_cores else 1
    return Sharing("divided", capacity=CAPACITY, step=step, default=step)


# -- counters of partitionable devices


class _CoreCounters:
    """The counters of the cores that are published: for each NUMA node a set, in it one for each L3 cache."""

    def __init__(self, topology: CpuTopology, cores: Iterable[CpuGroup]) -> None:
        self._topology = topology
        self._cores = {cpu: min(core.cpus) for core in cores for cpu in core.cpus}
        caches: dict[int, set[int | None]] = {}
        for cpu in set(self._cores.values()):
            caches.setdefault(topology.by_id[cpu].numa_node, set()).add(topology.by_id[cpu].l3)
        self._by_cache = {node: len(l3s) <= _COUNTERS_PER_SET for node, l3s in caches.items()}

    def count_caches_of(self, cpus: CpuSet) -> bool:
        """Return whether the cores of these CPUs are counted by L3 cache, so that a cache can be a device."""
        return all(self._by_cache[self._topology.by_id[cpu].numa_node] for cpu in cpus)

    def taken_by(self, cpus: CpuSet) -> list[CounterConsumption]:
        """Return what a device with these CPUs takes: one for each core."""
        return [CounterConsumption(name, counters) for name, counters in self._of(cpus).items()]

    def sets(self) -> list[CounterSet]:
        """Return all counters."""
        return [CounterSet(name, counters) for name, counters in self._of(frozenset(self._cores)).items()]

    def _of(self, cpus: CpuSet) -> dict[str, Counter[str]]:
        counters: dict[str, Counter[str]] = {}
        for first in sorted({self._cores[cpu] for cpu in cpus}):
            cpu = self._topology.by_id[first]
            by_cache = self._by_cache[cpu.numa_node] and cpu.l3 is not None
            counter = f"l3cache-{cpu.l3:03d}" if by_cache else "cores"
            counters.setdefault(f"numa-{cpu.numa_node:03d}", Counter())[counter] += 1
        return counters
