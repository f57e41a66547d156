"""Fake machines: a description in a few words, written as the `/sys` and `/proc` of a kernel.

    host = regular_machine(sockets=2, cores=8, l3_caches=2).offlined(3).write(tmp_path)
    topology = dra_sdk.hardware.read_cpus(host)

It writes the files that `dra_sdk.hardware` reads, with the names, formats and links of a 6.x kernel. For unusual
machines, use `dataclasses.replace` on a regular machine or on single CPUs. Sizes are in bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from dra_sdk.errors import SettingsError
from dra_sdk.hardware import CpuSet, Host, format_cpuset

Numbering = Literal["far", "near"]
"""How CPUs are numbered: `far` numbers the first threads of all cores before the second ones (most x86 servers),
`near` numbers the threads of each core consecutively (hybrid x86, POWER, many virtual machines)."""

_GIB = 1 << 30
_CPUS: Final = "sys/devices/system/cpu"


@dataclass(frozen=True, kw_only=True)
class FakeCpu:
    """One logical CPU.

    id: the CPU's number.
    core: CPUs with the same number are threads of one core; unique on the machine.
    core_id: the kernel's number of the core, unique in a socket.
    socket: number of the socket.
    die: number of the die, unique on the machine; None if the kernel shows none.
    cluster: number of the cluster, unique on the machine; None if the kernel shows none.
    numa_node: number of the NUMA node.
    l3: ID of the L3 cache; None for no L3 cache.
    capacity: content of `cpu_capacity`; None for no such file.
    atom: whether it is an E-core of a hybrid x86.
    online: whether it is online.
    """

    id: int
    core: int
    core_id: int
    socket: int = 0
    die: int | None = None
    cluster: int | None = None
    numa_node: int = 0
    l3: int | None = 0
    capacity: int | None = None
    atom: bool = False
    online: bool = True


@dataclass(frozen=True, kw_only=True)
class FakePci:
    """One PCI function.

    address: such as 0000:5e:00.0.
    vendor, device, class_code: the IDs in configuration space.
    root: the PCI root, as its directory in /sys/devices: `pci0000:3a`, or below others, as in a virtual machine.
    bridges: addresses of the bridges between the root and the function, outermost first.
    driver: name of the bound driver; None for none.
    numa_node: number of the NUMA node; -1 if it is not known.
    iommu_group: number of the IOMMU group; None for none.
    total_vfs: number of virtual functions that it supports. Its enabled ones name it as `physical_function`.
    physical_function: address of the physical function of a virtual one; None for other functions.
    """

    address: str
    vendor: int = 0x8086
    device: int = 0x1572
    class_code: int = 0x020000
    root: str = "pci0000:00"
    bridges: tuple[str, ...] = ()
    driver: str | None = None
    numa_node: int = -1
    iommu_group: int | None = None
    total_vfs: int = 0
    physical_function: str | None = None


@dataclass(frozen=True, kw_only=True)
class FakeMachine:
    """A machine to write.

    cpus: its CPUs.
    numa: False for a kernel without NUMA support, which has no /sys/devices/system/node.
    l3_ids: False for caches without `id` files, as on ARM.
    smt_control: content of smt/control; None for no such file.
    isolated: the CPUs in `isolated`.
    nohz_full: content of that file; None for no such file.
    memory: bytes of each NUMA node.
    hugepages: number of pages of each NUMA node, by page size in bytes.
    distances: SLIT distance of pairs of NUMA nodes; by default 12 in one socket, 21 between sockets.
    pci: its PCI functions.
    """

    cpus: tuple[FakeCpu, ...]
    numa: bool = True
    l3_ids: bool = True
    smt_control: str | None = "on"
    isolated: CpuSet = frozenset()
    nohz_full: str | None = None
    memory: int = 16 * _GIB
    hugepages: Mapping[int, int] = field(default_factory=lambda: {2 << 20: 0, 1 << 30: 0})
    distances: Mapping[tuple[int, int], int] = field(default_factory=dict)
    pci: tuple[FakePci, ...] = ()

    def offlined(self, *cpus: int) -> FakeMachine:
        """Return the same machine with these CPUs offline."""
        return self.changed(lambda cpu: replace(cpu, online=cpu.online and cpu.id not in cpus))

    def changed(self, change: Callable[[FakeCpu], FakeCpu]) -> FakeMachine:
        """Return the same machine with `change` applied to each CPU."""
        return replace(self, cpus=tuple(map(change, self.cpus)))

    def write(self, root: Path) -> Host:
        """Write the machine under `root`, which has none yet; the Host that reads it. SettingsError if it has one."""
        if (root / _CPUS).exists():
            raise SettingsError(f"{root} has a machine already: describe it whole at once, or make another node")
        writer = _TreeWriter(root)
        _write_cpus(self, writer)
        _write_memory(self, writer)
        _write_pci(self, writer)
        return Host(root)


def regular_machine(
    *,
    sockets: int = 1,
    numa_nodes: int = 1,
    l3_caches: int = 1,
    cores: int = 4,
    threads: int = 2,
    numbering: Numbering = "far",
    unique_core_ids: bool = False,
) -> FakeMachine:
    """Return a machine with equal parts: `numa_nodes` per socket, `l3_caches` (0: none) and `cores` per NUMA node.

    Core IDs start at 0 in every socket, as on real machines, unless `unique_core_ids`. Raises ValueError if the cores
    of a NUMA node cannot be distributed evenly over its caches.
    """
    if l3_caches and cores % l3_caches:
        raise ValueError(f"{cores} cores cannot be distributed evenly over {l3_caches} L3 caches")
    per_socket = numa_nodes * cores
    total = sockets * per_socket

    def cpu(core: int, thread: int) -> FakeCpu:
        node = core // cores
        return FakeCpu(
            id=core + thread * total if numbering == "far" else core * threads + thread,
            core=core,
            core_id=core if unique_core_ids else core % per_socket,
            socket=core // per_socket,
            die=core // per_socket,
            numa_node=node,
            l3=core * l3_caches // cores if l3_caches else None,
        )

    cpus = [cpu(core, thread) for core in range(total) for thread in range(threads)]
    return FakeMachine(
        cpus=tuple(sorted(cpus, key=lambda one: one.id)), smt_control="on" if threads > 1 else "notsupported"
    )


def hybrid_machine(*, p_cores: int = 8, e_cores: int = 8, e_cluster: int = 4) -> FakeMachine:
    """Return a hybrid x86: `p_cores` with two threads each, then `e_cores` with one, in clusters, with one L3 cache."""
    performance = regular_machine(cores=p_cores, numbering="near").cpus
    efficiency = [
        FakeCpu(id=2 * p_cores + n, core=p_cores + n, core_id=p_cores + n, die=0, atom=True) for n in range(e_cores)
    ]
    clustered = [replace(cpu, cluster=p_cores + n // e_cluster) for n, cpu in enumerate(efficiency)]
    return FakeMachine(cpus=(*(replace(cpu, cluster=cpu.core) for cpu in performance), *clustered))


class _TreeWriter:
    """Writes files under `root`. A large machine has ten thousand files, so each directory is made only once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: set[str] = set()

    def text(self, path: str, content: object) -> None:
        with (self._parent(path) / path.rpartition("/")[2]).open("w", encoding="utf-8") as file:
            file.write(f"{content}\n")

    def link(self, path: str, target: str) -> None:
        """Make a relative link from `path` to `target`, both below `root`, as in sysfs."""
        parent = self._parent(path)
        (parent / path.rpartition("/")[2]).symlink_to(os.path.relpath(target, path.rpartition("/")[0]))

    def _parent(self, path: str) -> Path:
        name = path.rpartition("/")[0]
        parent = self._root / name
        if name not in self._made:
            parent.mkdir(parents=True, exist_ok=True)
            self._made.add(name)
        return parent


def _ids(cpus: Iterable[FakeCpu]) -> str:
    return format_cpuset(cpu.id for cpu in cpus)


def _write_cpus(machine: FakeMachine, writer: _TreeWriter) -> None:
    base = _CPUS
    online = [cpu for cpu in machine.cpus if cpu.online]
    writer.text(f"{base}/present", _ids(machine.cpus))
    writer.text(f"{base}/possible", _ids(machine.cpus))
    writer.text(f"{base}/online", _ids(online))
    writer.text(f"{base}/offline", _ids(cpu for cpu in machine.cpus if not cpu.online))
    writer.text(f"{base}/isolated", format_cpuset(machine.isolated))
    if machine.nohz_full is not None:
        writer.text(f"{base}/nohz_full", machine.nohz_full)
    if machine.smt_control is not None:
        writer.text(f"{base}/smt/control", machine.smt_control)
    if any(cpu.atom for cpu in machine.cpus):
        writer.text("sys/devices/cpu_atom/cpus", _ids(cpu for cpu in online if cpu.atom))
        writer.text("sys/devices/cpu_core/cpus", _ids(cpu for cpu in online if not cpu.atom))
    for cpu in machine.cpus:
        writer.text(f"{base}/cpu{cpu.id}/uevent", "DRIVER=processor")
    for cpu in online:  # an offline CPU has a directory, but no topology and no caches
        _write_cpu(machine, writer, cpu, online)


def _write_cpu(machine: FakeMachine, writer: _TreeWriter, cpu: FakeCpu, online: list[FakeCpu]) -> None:
    base = f"sys/devices/system/cpu/cpu{cpu.id}"
    core = _ids(other for other in online if other.core == cpu.core)
    topology = {
        "physical_package_id": cpu.socket,
        "core_id": cpu.core_id,
        "die_id": -1 if cpu.die is None else cpu.die,
        "cluster_id": -1 if cpu.cluster is None else cpu.cluster,
        "core_cpus_list": core,
        "thread_siblings_list": core,
        "die_cpus_list": cpu.id if cpu.die is None else _ids(o for o in online if o.die == cpu.die),
        "cluster_cpus_list": cpu.id if cpu.cluster is None else _ids(o for o in online if o.cluster == cpu.cluster),
    }
    for name, value in topology.items():
        writer.text(f"{base}/topology/{name}", value)
    if cpu.capacity is not None:
        writer.text(f"{base}/cpu_capacity", cpu.capacity)
    _write_caches(machine, writer, cpu, core, online)
    if machine.numa:
        writer.link(f"{base}/node{cpu.numa_node}", f"sys/devices/system/node/node{cpu.numa_node}")


def _write_caches(machine: FakeMachine, writer: _TreeWriter, cpu: FakeCpu, core: str, online: list[FakeCpu]) -> None:
    levels = {0: (1, core, cpu.core), 2: (2, core, cpu.core)}
    if cpu.l3 is not None:
        levels[3] = (3, _ids(other for other in online if other.l3 == cpu.l3), cpu.l3)
    for index, (level, shared, number) in levels.items():
        base = f"sys/devices/system/cpu/cpu{cpu.id}/cache/index{index}"
        writer.text(f"{base}/level", level)
        writer.text(f"{base}/shared_cpu_list", shared)
        if machine.l3_ids:
            writer.text(f"{base}/id", number)


def _write_memory(machine: FakeMachine, writer: _TreeWriter) -> None:
    sockets = {cpu.numa_node: cpu.socket for cpu in machine.cpus}
    nodes = sorted(sockets)
    if not machine.numa:
        writer.text("proc/meminfo", f"MemTotal:       {machine.memory // 1024} kB\nMemFree:        0 kB")
        _write_hugepages(machine, writer, "sys/kernel/mm/hugepages")
        return
    writer.text("sys/devices/system/node/online", format_cpuset(nodes))
    writer.text("proc/meminfo", f"MemTotal:       {machine.memory * len(nodes) // 1024} kB")
    for node in nodes:
        base = f"sys/devices/system/node/node{node}"
        figures = [machine.distances.get((node, other), _distance(sockets, node, other)) for other in nodes]
        writer.text(f"{base}/cpulist", _ids(cpu for cpu in machine.cpus if cpu.online and cpu.numa_node == node))
        writer.text(f"{base}/distance", " ".join(map(str, figures)))
        writer.text(f"{base}/meminfo", f"Node {node} MemTotal:       {machine.memory // 1024} kB")
        _write_hugepages(machine, writer, f"{base}/hugepages")


def _distance(sockets: Mapping[int, int], node: int, other: int) -> int:
    if node == other:
        return 10
    return 12 if sockets[node] == sockets[other] else 21


def _write_hugepages(machine: FakeMachine, writer: _TreeWriter, base: str) -> None:
    for size, pages in machine.hugepages.items():
        for name in ("nr_hugepages", "free_hugepages"):
            writer.text(f"{base}/hugepages-{size // 1024}kB/{name}", pages)


def _write_pci(machine: FakeMachine, writer: _TreeWriter) -> None:
    virtual: dict[str, list[FakePci]] = {}
    for function in machine.pci:
        if function.physical_function is not None:
            virtual.setdefault(function.physical_function, []).append(function)
    paths = {f.address: "/".join(("sys/devices", f.root, *f.bridges, f.address)) for f in machine.pci}
    for root in sorted({function.root for function in machine.pci}):
        local = [c for c in machine.cpus if c.online and c.numa_node in _nodes_of_root(machine, root)]
        bus = root.rpartition("/")[2].removeprefix("pci")
        writer.text(f"sys/devices/{root}/pci_bus/{bus}/cpulistaffinity", _ids(local))
    for function in machine.pci:
        base = paths[function.address]
        _write_function(writer, function, base)
        if function.total_vfs:
            enabled = virtual.get(function.address, [])
            writer.text(f"{base}/sriov_totalvfs", function.total_vfs)
            writer.text(f"{base}/sriov_numvfs", len(enabled))
            for number, child in enumerate(enabled):
                writer.link(f"{base}/virtfn{number}", paths[child.address])
        if function.physical_function is not None:
            writer.link(f"{base}/physfn", paths[function.physical_function])


def _nodes_of_root(machine: FakeMachine, root: str) -> set[int]:
    """Return the NUMA nodes of the functions below `root`; all nodes if no function has one."""
    nodes = {function.numa_node for function in machine.pci if function.root == root} - {-1}
    return nodes or {cpu.numa_node for cpu in machine.cpus}


def _write_function(writer: _TreeWriter, function: FakePci, base: str) -> None:
    for name, value in {
        "vendor": f"{function.vendor:#06x}",
        "device": f"{function.device:#06x}",
        "subsystem_vendor": f"{function.vendor:#06x}",
        "subsystem_device": "0x0000",
        "class": f"{function.class_code:#08x}",
        "numa_node": function.numa_node,
        "driver_override": "(null)",
        "modalias": _modalias(function),
        "uevent": _uevent(function),
    }.items():
        writer.text(f"{base}/{name}", value)
    writer.link(f"sys/bus/pci/devices/{function.address}", base)
    if function.driver is not None:
        writer.link(f"{base}/driver", f"sys/bus/pci/drivers/{function.driver}")
        for name in ("bind", "unbind"):
            writer.text(f"sys/bus/pci/drivers/{function.driver}/{name}", "")
    if function.iommu_group is not None:
        writer.link(f"{base}/iommu_group", f"sys/kernel/iommu_groups/{function.iommu_group}")


def _uevent(function: FakePci) -> str:
    """Return what the kernel tells udev of a function: see `pci_uevent` of the kernel."""
    lines = [f"PCI_CLASS={function.class_code:X}", f"PCI_ID={function.vendor:04X}:{function.device:04X}"]
    lines += [f"PCI_SUBSYS_ID={function.vendor:04X}:0000", f"PCI_SLOT_NAME={function.address}"]
    return "\n".join([*([f"DRIVER={function.driver}"] if function.driver else []), *lines])


def _modalias(function: FakePci) -> str:
    """Return the name by which the kernel finds a module for a function: see `file2alias.c` of the kernel."""
    code, vendor = f"{function.class_code:06X}", f"{function.vendor:08X}"
    return f"pci:v{vendor}d{function.device:08X}sv{vendor}sd00000000bc{code[:2]}sc{code[2:4]}i{code[4:]}"
