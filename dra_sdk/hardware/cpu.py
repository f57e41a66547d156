"""CPUs, and how they share cores, caches, NUMA nodes and sockets, read from `/sys/devices/system/cpu`.

Sources: Documentation/admin-guide/cputopology.rst and Documentation/ABI/*/sysfs-devices-system-cpu of the kernel.
Machines differ. This is how the reader handles unusual ones:

- Core ids start again in every socket (any x86 machine with two): the lowest thread of a core identifies it.
- `physical_package_id` is -1 or missing (virtual machines, ARM without PPTT): all such CPUs are in socket 0.
- `/sys/devices/system/node` is missing (kernels without NUMA support): all CPUs are in node 0.
- There is no `cache` directory, or no level 3 in it: the CPU has no L3 cache.
- No cache has an `id` (ARM), or ids repeat: the lowest CPU of an L3 cache identifies it.
- There is no SMT control, or the kernel does not implement it: SMT is on if any core has more than one thread.
- `nohz_full` reads `(null)` on kernels that started without this parameter: the set is empty.
- A file cannot be read: what it says is taken from the other threads of the core, or left out. If nothing says in which
  core, socket or NUMA node a CPU is, it is among `unplaced`; the others are as before. The id of a cache is taken from
  the other CPUs of the cache, and if none has it, these CPUs alone have no L3 cache.

Reading fails if a CPU goes offline at the same time. Read again to get the new state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import Literal

from dra_sdk.errors import HardwareError
from dra_sdk.hardware.cpuset import CpuSet, format_cpuset
from dra_sdk.hardware.host import numbered_paths, read_cpuset, read_if_exists, read_int, read_optional, read_text
from dra_sdk.hardware.numa import read_numa_cpus
from dra_sdk.model.driver import Host
from dra_sdk.model.omissions import leave_out, leave_out_fact

CoreType = Literal["standard", "p-core", "e-core"]
"""`standard` if all cores of the machine are alike, else performance core or efficiency core."""

_NO_ID = (None, -1, 65535)
_E_CORE_PMUS = ("cpu_atom", "cpu_lowpower")
_E_CORE_SHARE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """One online logical CPU (hardware thread).

    The kernel's numbers of cores, dies and clusters start again in every socket. `core`, `die` and `cluster` are the
    lowest CPU number of the core, die or cluster instead, which is unique on the machine.

    id: number of the CPU.
    core: lowest CPU number of the core.
    core_id: the kernel's number of the core, unique in the socket. Negative if it cannot be read.
    socket: number of the socket (`physical_package_id`). 0 if the kernel does not know it, -1 if it cannot be read.
    die: lowest CPU number of the die. None if the kernel reports no dies.
    cluster: lowest CPU number of the cluster. None if the kernel reports no clusters.
    numa_node: number of the NUMA node. 0 on a kernel without NUMA support, -1 if it cannot be read.
    l3: id of the L3 cache. None if the CPU has none.
    core_type: standard, performance or efficiency core.
    capacity: relative performance by the kernel; the fastest CPU has 1024. None if unknown.
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
    """The CPUs of a machine.

    cpus: the online CPUs, ascending by number.
    offline: CPUs that are present but switched off.
    isolated: CPUs without the kernel's load balancing (`isolcpus=` or an isolated cpuset partition).
    nohz_full: CPUs without a regular timer tick.
    smt: whether simultaneous multithreading is on.
    unplaced: online CPUs of which the core, the socket or the NUMA node cannot be read: nobody should get them alone.
    """

    cpus: tuple[Cpu, ...]
    offline: CpuSet
    isolated: CpuSet
    nohz_full: CpuSet
    smt: bool
    unplaced: CpuSet = frozenset()

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
        """CPUs of each L3 cache. A CPU without one is missing."""
        return self.group(lambda cpu: cpu.l3)

    def siblings(self, cpu: int) -> CpuSet:
        """Return all online threads of the core of `cpu`, including `cpu`."""
        return self.cores[self.by_id[cpu].core]

    def group(self, key: Callable[[Cpu], int | None]) -> dict[int, CpuSet]:
        """Group CPUs by the number that `key` returns, ascending. CPUs for which it returns None are left out."""
        groups: dict[int, set[int]] = {}
        for cpu in self.cpus:
            value = key(cpu)
            if value is not None:
                groups.setdefault(value, set()).add(cpu.id)
        return {value: frozenset(groups[value]) for value in sorted(groups)}


def read_cpus(host: Host) -> CpuTopology:
    """Return the CPU topology of `host`. HardwareError if it is not known which CPUs and NUMA nodes there are."""
    root = host.sys / "devices/system/cpu"
    online = read_cpuset(root / "online")
    if not online:
        raise HardwareError(f"{root / 'online'}: lists no CPU")
    cpus = tuple(sorted(_read_cpu_values(host, root, online), key=attrgetter("id")))
    return CpuTopology(
        cpus=cpus,
        offline=(read_optional(read_cpuset, root / "present") or online) - online,
        isolated=read_optional(read_cpuset, root / "isolated") or frozenset(),
        nohz_full=read_optional(_read_nohz_full, root / "nohz_full") or frozenset(),
        smt=_read_smt(root / "smt/control", cpus),
        unplaced=frozenset(cpu.id for cpu in cpus if min(cpu.core_id, cpu.socket, cpu.numa_node) < 0),
    )


def _read_cpu_values(host: Host, root: Path, online: CpuSet) -> Iterable[Cpu]:
    numa = _node_of_each(host, online)
    l3 = _read_l3(root, online)
    capacities = {cpu: read_optional(read_int, root / f"cpu{cpu}/cpu_capacity") for cpu in online}
    types = _core_types(host, capacities)
    cores = _cores(root, online)
    ids = _core_numbers(root, cores, "core_id")
    sockets = _core_numbers(root, cores, "physical_package_id")
    for core, threads in cores.items():
        for cpu in sorted(threads):
            topology = root / f"cpu{cpu}/topology"
            yield Cpu(
                id=cpu,
                core=core,
                core_id=ids.get(core, -1 - core) if ids else core,
                socket=max(sockets[core], 0) if core in sockets else -1 if sockets else 0,
                die=_lowest(topology, "die", online),
                cluster=_lowest(topology, "cluster", online),
                numa_node=numa.get(cpu, -1),
                l3=l3.get(cpu),
                core_type=types[cpu],
                capacity=capacities[cpu],
            )


def _cores(root: Path, online: CpuSet) -> dict[int, CpuSet]:
    """Return the threads of each core, by its lowest CPU. A list that cannot be read is taken from another thread."""
    lists = {cpu: _read_siblings(root / f"cpu{cpu}/topology", cpu) for cpu in online}
    known = {other: threads for threads in lists.values() if threads for other in threads}
    cores: dict[int, CpuSet] = {}
    for cpu, threads in lists.items():
        together = (threads or known.get(cpu, frozenset({cpu}))) & online
        cores[min(together)] = cores.get(min(together), frozenset()) | {cpu}
    return dict(sorted(cores.items()))


def _read_siblings(topology: Path, cpu: int) -> CpuSet | None:
    """Read the threads of a CPU's core: `core_cpus_list` since 5.3; every kernel has `thread_siblings_list`."""
    read = partial(_read_list_with, cpu)
    return read_optional(read, topology / "core_cpus_list") or read_optional(read, topology / "thread_siblings_list")


def _read_list_with(cpu: int, path: Path) -> CpuSet:
    siblings = read_cpuset(path)
    if cpu not in siblings:
        raise HardwareError(f"{path}: does not list CPU {cpu} itself")
    return siblings


def _core_numbers(root: Path, cores: Mapping[int, CpuSet], name: str) -> dict[int, int]:
    """Return a number that all threads of a core have, for each core of which one is readable.

    Without the others: they are named, unless no core has such a file, as on kernels that know no cores.
    """
    numbers: dict[int, int] = {}
    for core, threads in cores.items():
        found = (read_optional(read_int, root / f"cpu{cpu}/topology/{name}") for cpu in sorted(threads))
        if (number := next((number for number in found if number is not None), None)) is not None:
            numbers[core] = number
    for core in cores.keys() - numbers.keys() if numbers else ():
        leave_out(f"CPU {format_cpuset(cores[core])}", f"{root}/cpu{core}/topology/{name} cannot be read")
    return numbers


def _lowest(topology: Path, what: str, online: CpuSet) -> int | None:
    if read_optional(read_int, topology / f"{what}_id") in _NO_ID:
        return None
    members = read_optional(read_cpuset, topology / f"{what}_cpus_list")
    return min(members & online) if members and members & online else None


def _node_of_each(host: Host, online: CpuSet) -> dict[int, int]:
    nodes = {cpu: node for node, cpus in read_numa_cpus(host).items() for cpu in cpus}
    for cpu in sorted(online - nodes.keys()):
        leave_out(f"CPU {cpu}", f"{host.sys / 'devices/system/node'}: CPU {cpu} is online but in no NUMA node")
    return nodes


def _read_l3(root: Path, online: CpuSet) -> dict[int, int]:
    """Return the id of the L3 cache of each CPU that has one. What one CPU does not say, another of its cache does.

    A cache of which none says the id has none, and is named, unless that is so of all caches of the machine.
    """
    caches: dict[CpuSet, int | None] = {}
    known: set[int] = set()
    for cpu in sorted(online):
        if cpu in known:
            continue
        for index in (read_optional(_indexes, root / f"cpu{cpu}/cache") or {}).values():
            if read_optional(read_int, index / "level") == 3:  # noqa: PLR2004
                try:
                    shared = _read_list_with(cpu, index / "shared_cpu_list") & online
                    caches.setdefault(shared, None)
                    caches[shared] = read_if_exists(read_int, index / "id")
                    known |= shared if caches[shared] is not None else set()
                except HardwareError as error:
                    leave_out_fact(str(index), error)
    ids = [number for number in caches.values() if number is not None]
    if not ids or len(set(ids)) < len(ids):
        return {cpu: min(shared) for shared in caches for cpu in shared}
    for shared in (shared for shared, number in caches.items() if number is None):
        leave_out_fact(f"L3 cache of CPU {format_cpuset(shared)}", f"{root}: none of its CPUs says its id")
    return {cpu: number for shared, number in caches.items() if number is not None for cpu in shared}


def _indexes(cache: Path) -> dict[int, Path]:
    return numbered_paths(cache, "index")


def _core_types(host: Host, capacities: Mapping[int, int | None]) -> dict[int, CoreType]:
    """Return the core type of each CPU.

    Hybrid x86 machines list their E-cores under a separate PMU. Elsewhere the kernel's capacities decide. Capacities of
    equal cores differ by a few percent, so only a CPU below 90 % of the largest capacity is an E-core.
    """
    lists = [cpus for pmu in _E_CORE_PMUS if (cpus := _cpus_of_pmu(host, pmu, frozenset(capacities))) is not None]
    if lists:
        small: CpuSet = frozenset().union(*lists)
    else:
        largest = max((capacity for capacity in capacities.values() if capacity is not None), default=0)
        small = frozenset(c for c, capacity in capacities.items() if (capacity or largest) < _E_CORE_SHARE * largest)
    hybrid = bool(lists) or bool(small)
    return {cpu: ("e-core" if cpu in small else "p-core") if hybrid else "standard" for cpu in capacities}


def _cpus_of_pmu(host: Host, pmu: str, online: CpuSet) -> CpuSet | None:
    """Return the E-cores that a PMU lists; if its list cannot be read, those that the PMU of P-cores does not list."""
    path = host.sys / "devices" / pmu / "cpus"
    try:
        return read_if_exists(read_cpuset, path)
    except HardwareError as error:
        leave_out_fact(str(path), error)
        others = read_optional(read_cpuset, host.sys / "devices/cpu_core/cpus")
        return None if others is None else online - others


def _read_nohz_full(path: Path) -> CpuSet:
    return frozenset() if read_text(path) == "(null)" else read_cpuset(path)


def _read_smt(path: Path, cpus: tuple[Cpu, ...]) -> bool:
    control = read_optional(read_text, path)
    if control is None or control == "notimplemented":
        return len({cpu.core for cpu in cpus}) < len(cpus)
    # A kernel that can run some of a core's threads writes their number instead of "on".
    return control == "on" or (control.isdecimal() and int(control) > 1)
