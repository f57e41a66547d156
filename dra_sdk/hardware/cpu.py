"""CPUs and how they share cores, caches, NUMA nodes and sockets: the values. `cpu_reader` fills them from sysfs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from dra_sdk.hardware.cpuset import CpuSet

CoreType = Literal["standard", "p-core", "e-core"]
"""`standard` where all cores of the machine are alike, else performance or efficiency core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """One online logical CPU (hardware thread).

    `core`, `die` and `cluster` are the lowest CPU number of the core, die or cluster: unlike the kernel's own
    numbers, which start again in every socket, they are unique on the machine. `core_id` is the kernel's number.
    `die` and `cluster` are None where the kernel knows of none. `l3` is the id of the last-level cache, None where
    the CPU has none. `capacity` is the kernel's relative performance (the fastest CPU has 1024), None if unknown.
    """

    id: int
    core: int
    core_id: int
    socket: int
    die: int | None
    cluster: int | None
    numa_node: int
    l3: int | None
    core_type: CoreType
    capacity: int | None


@dataclass(frozen=True)
class CpuTopology:
    """The online CPUs of a machine, ascending by id, and the sets the kernel keeps of them.

    `offline` holds CPUs that are there but switched off, `isolated` those kept from the kernel's load balancing
    (`isolcpus=` or an isolated cpuset partition), `nohz_full` those without a regular timer tick. `smt` tells
    whether simultaneous multithreading is on.
    """

    cpus: tuple[Cpu, ...]
    offline: CpuSet
    isolated: CpuSet
    nohz_full: CpuSet
    smt: bool

    @cached_property
    def online(self) -> CpuSet:
        """Numbers of all online CPUs."""
        return frozenset(cpu.id for cpu in self.cpus)

    @cached_property
    def by_id(self) -> Mapping[int, Cpu]:
        """Each online CPU by its number."""
        return {cpu.id: cpu for cpu in self.cpus}

    @cached_property
    def cores(self) -> Mapping[int, CpuSet]:
        """Threads of each core, by the core's lowest CPU."""
        return self.group(lambda cpu: cpu.core)

    @cached_property
    def sockets(self) -> Mapping[int, CpuSet]:
        """CPUs of each socket."""
        return self.group(lambda cpu: cpu.socket)

    @cached_property
    def numa_nodes(self) -> Mapping[int, CpuSet]:
        """CPUs of each NUMA node that has any."""
        return self.group(lambda cpu: cpu.numa_node)

    @cached_property
    def l3_caches(self) -> Mapping[int, CpuSet]:
        """CPUs of each L3 cache; CPUs without one are in none."""
        return self.group(lambda cpu: cpu.l3)

    def siblings(self, cpu: int) -> CpuSet:
        """All online threads of the core of `cpu`, itself included."""
        return self.cores[self.by_id[cpu].core]

    def group(self, key: Callable[[Cpu], int | None]) -> dict[int, CpuSet]:
        """CPUs by what `key` says of them, in ascending order of it; CPUs for which it says None are left out."""
        groups: dict[int, set[int]] = {}
        for cpu in self.cpus:
            value = key(cpu)
            if value is not None:
                groups.setdefault(value, set()).add(cpu.id)
        return {value: frozenset(groups[value]) for value in sorted(groups)}
