"""NUMA nodes: their CPUs, memory, huge pages and distances.

Source: `/sys/devices/system/node` (Documentation/ABI/stable/sysfs-devices-node). A kernel without NUMA support does not
have this directory. Such a machine has one node 0 with everything, by `/proc/meminfo` and `/sys/kernel/mm/hugepages`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dra_sdk.errors import HardwareError
from dra_sdk.hardware.cpuset import CpuSet
from dra_sdk.hardware.host import numbered_paths, read_cpuset, read_int, read_text
from dra_sdk.model.driver import Host

LOCAL_DISTANCE = 10
"""Distance of a node to itself, as the ACPI SLIT defines it."""

_MEM_TOTAL = re.compile(r"^(?:Node \d+ )?MemTotal:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HugePages:
    """Huge pages of one size on one node.

    size: size of one page in bytes.
    total: number of pages.
    free: number of free pages.
    """

    size: int
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One online NUMA node.

    id: number of the node.
    cpus: online CPUs. Empty for a node with memory only.
    memory: memory in bytes, including huge pages.
    hugepages: huge pages, ascending by size.
    distances: distance (ACPI SLIT) to every online node by its number, including this one.
    """

    id: int
    cpus: CpuSet
    memory: int
    hugepages: tuple[HugePages, ...]
    distances: Mapping[int, int]


def read_numa_nodes(host: Host) -> tuple[NumaNode, ...]:
    """Return all online nodes of `host`, ascending by number. HardwareError names the file that is invalid."""
    directories = numbered_paths(_nodes(host), "node")
    if not directories:
        return (_only_node(host),)
    return tuple(_read_node(node, path, list(directories)) for node, path in directories.items())


def read_numa_cpus(host: Host) -> dict[int, CpuSet]:
    """Return only the online CPUs of each node. `{0: all}` on a kernel without NUMA support."""
    directories = numbered_paths(_nodes(host), "node")
    if not directories:
        return {0: _online(host)}
    return {node: read_cpuset(path / "cpulist") for node, path in directories.items()}


def _nodes(host: Host) -> Path:
    return host.sys / "devices/system/node"


def _online(host: Host) -> CpuSet:
    return read_cpuset(host.sys / "devices/system/cpu/online")


def _only_node(host: Host) -> NumaNode:
    return NumaNode(
        id=0,
        cpus=_online(host),
        memory=_read_memory(host.proc / "meminfo"),
        hugepages=_read_hugepages(host.sys / "kernel/mm/hugepages"),
        distances={0: LOCAL_DISTANCE},
    )


def _read_node(node: int, path: Path, online: list[int]) -> NumaNode:
    return NumaNode(
        id=node,
        cpus=read_cpuset(path / "cpulist"),
        memory=_read_memory(path / "meminfo"),
        hugepages=_read_hugepages(path / "hugepages"),
        distances=_read_distances(path / "distance", online),
    )


def _read_distances(path: Path, online: list[int]) -> dict[int, int]:
    # One number for each online node in ascending order: with nodes 0 and 8, the second number is for node 8.
    figures = read_text(path).split()
    if len(figures) != len(online) or not all(figure.isdecimal() for figure in figures):
        raise HardwareError(f"{path}: expected {len(online)} distances, one for each node, found {figures}")
    return dict(zip(online, map(int, figures), strict=True))


def _read_memory(path: Path) -> int:
    match = _MEM_TOTAL.search(read_text(path))
    if match is None:
        raise HardwareError(f"{path}: no line MemTotal in kB")
    return int(match[1]) * 1024


def _read_hugepages(directory: Path) -> tuple[HugePages, ...]:
    if not directory.is_dir():
        return ()
    names = (re.fullmatch(r"hugepages-(\d+)kB", path.name) for path in directory.iterdir())
    return tuple(
        HugePages(
            size=kib * 1024,
            total=read_int(directory / f"hugepages-{kib}kB/nr_hugepages"),
            free=read_int(directory / f"hugepages-{kib}kB/free_hugepages"),
        )
        for kib in sorted(int(name[1]) for name in names if name)
    )
