"""CPUs, and how they share cores, caches, NUMA nodes and sockets, read from `/sys/devices/system/cpu`.

Sources: Documentation/admin-guide/cputopology.rst and Documentation/ABI/*/sysfs-devices-system-cpu of the kernel.
Machines differ. This is how the reader handles unusual ones:

- Core ids start again in every socket (any x86 machine with two): the lowest thread of a core identifies it.
- `physical_package_id` is -1 or missing (virtual machines, ARM without PPTT): all such CPUs are in socket 0.
- `/sys/devices/system/node` is missing (kernels without NUMA support): all CPUs are in node 0.
- There is no `cache` directory, or no level 3 in it: the CPU has no L3 cache.
- Caches have no `id` (ARM), or ids that repeat: the lowest CPU of an L3 cache identifies it.
- There is no SMT control, or the kernel does not implement it: SMT is on if any core has more than one thread.
- `nohz_full` reads `(null)` on kernels that started without this parameter: the set is empty.

Reading fails if a CPU goes offline at the same time. Read again to get the new state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from dra_sdk.errors import HardwareError
from dra_sdk.hardware.cpuset import CpuSet
from dra_sdk.hardware.host import numbered_paths, read_cpuset, read_int, read_optional, read_text
from dra_sdk.hardware.numa import read_numa_cpus
from dra_sdk.model.driver import Host

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
    core_id: the kernel's number of the core, unique in the socket.
    socket: number of the socket (`physical_package_id`). 0 if the kernel does not know it.
    die: lowest CPU number of the die. None if the kernel reports no dies.
    cluster: lowest CPU number of the cluster. None if the kernel reports no clusters.
    numa_node: number of the NUMA node. 0 on a kernel without NUMA support.
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
    """Return the CPU topology of `host`. HardwareError names the file that is missing or invalid."""
    root = host.sys / "devices/system/cpu"
    online = read_cpuset(root / "online")
    if not online:
        raise HardwareError(f"{root / 'online'}: lists no CPU")
    cpus = tuple(_read_cpu_values(host, root, online))
    return CpuTopology(
        cpus=cpus,
        offline=(read_optional(read_cpuset, root / "present") or online) - online,
        isolated=read_optional(read_cpuset, root / "isolated") or frozenset(),
        nohz_full=read_optional(_read_nohz_full, root / "nohz_full") or frozenset(),
        smt=_read_smt(root / "smt/control", cpus),
    )


def _read_cpu_values(host: Host, root: Path, online: CpuSet) -> Iterable[Cpu]:
    numa = _node_of_each(host, online)
    l3 = _read_l3(root, online)
    capacities = {cpu: read_optional(read_int, root / f"cpu{cpu}/cpu_capacity") for cpu in online}
    types = _core_types(host, capacities)
    for cpu in sorted(online):
        topology = root / f"cpu{cpu}/topology"
        core = min(_read_siblings(topology, cpu) & online)
        core_id = read_optional(read_int, topology / "core_id")
        yield Cpu(
            id=cpu,
            core=core,
            core_id=core if core_id is None else core_id,
            socket=max(read_optional(read_int, topology / "physical_package_id") or 0, 0),
            die=_lowest(topology, "die", online),
            cluster=_lowest(topology, "cluster", online),
            numa_node=numa[cpu],
            l3=l3.get(cpu),
            core_type=types[cpu],
            capacity=capacities[cpu],
        )


def _read_siblings(topology: Path, cpu: int) -> CpuSet:
    # core_cpus_list is the newer name (since 5.3). Every kernel has thread_siblings_list.
    newer = topology / "core_cpus_list"
    path = newer if newer.exists() else topology / "thread_siblings_list"
    siblings = read_cpuset(path)
    if cpu not in siblings:
        raise HardwareError(f"{path}: the threads of CPU {cpu}'s core do not include CPU {cpu}")
    return siblings


def _lowest(topology: Path, what: str, online: CpuSet) -> int | None:
    if read_optional(read_int, topology / f"{what}_id") in _NO_ID:
        return None
    members = read_optional(read_cpuset, topology / f"{what}_cpus_list")
    return min(members & online) if members and members & online else None


def _node_of_each(host: Host, online: CpuSet) -> dict[int, int]:
    nodes = {cpu: node for node, cpus in read_numa_cpus(host).items() for cpu in cpus}
    missing = online - nodes.keys()
    if missing:
        raise HardwareError(f"{host.sys / 'devices/system/node'}: CPU {min(missing)} is online but in no NUMA node")
    return nodes


def _read_l3(root: Path, online: CpuSet) -> dict[int, int]:
    """Return the id of the L3 cache of each CPU that has one."""
    caches: dict[CpuSet, int | None] = {}
    known: set[int] = set()
    for cpu in sorted(online):
        if cpu in known:
            continue
        for index in numbered_paths(root / f"cpu{cpu}/cache", "index").values():
            if read_optional(read_int, index / "level") == 3:  # noqa: PLR2004
                shared = read_cpuset(index / "shared_cpu_list") & online
                caches[shared] = read_optional(read_int, index / "id")
                known |= shared
    unique = None not in caches.values() and len(set(caches.values())) == len(caches)
    return {
        cpu: number if unique and number is not None else min(shared)
        for shared, number in caches.items()
        for cpu in shared
    }


def _core_types(host: Host, capacities: Mapping[int, int | None]) -> dict[int, CoreType]:
    """Return the core type of each CPU.

    Hybrid x86 machines list their E-cores under a separate PMU. Elsewhere the kernel's capacities decide. Capacities of
    equal cores differ by a few percent, so only a CPU below 90 % of the largest capacity is an E-core.
    """
    listed = [read_optional(read_cpuset, host.sys / "devices" / pmu / "cpus") for pmu in _E_CORE_PMUS]
    lists = [cpus for cpus in listed if cpus is not None]
    if lists:
        small: CpuSet = frozenset().union(*lists)
    else:
        largest = max((capacity for capacity in capacities.values() if capacity is not None), default=0)
        small = frozenset(c for c, capacity in capacities.items() if (capacity or largest) < _E_CORE_SHARE * largest)
    hybrid = bool(lists) or bool(small)
    return {cpu: ("e-core" if cpu in small else "p-core") if hybrid else "standard" for cpu in capacities}


def _read_nohz_full(path: Path) -> CpuSet:
    return frozenset() if read_text(path) == "(null)" else read_cpuset(path)


def _read_smt(path: Path, cpus: tuple[Cpu, ...]) -> bool:
    control = read_optional(read_text, path)
    if control is None or control == "notimplemented":
        return len({cpu.core for cpu in cpus}) < len(cpus)
    # A kernel that can run some of a core's threads writes their number instead of "on".
    return control == "on" or (control.isdecimal() and int(control) > 1)
