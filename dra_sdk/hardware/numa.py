"""NUMA nodes: their CPUs, memory, huge pages and distances.

Source: `/sys/devices/system/node` (Documentation/ABI/stable/sysfs-devices-node). A kernel without NUMA support does not
have this directory. Such a machine has one node 0 with everything, by `/proc/meminfo` and `/sys/kernel/mm/hugepages`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dra_sdk.errors import HardwareError
from dra_sdk.hardware.cpuset import CpuSet
from dra_sdk.hardware.host import (
    entries,
    numbered_paths,
    quoted,
    read_cpuset,
    read_int,
    read_optional,
    read_text,
)
from dra_sdk.model.driver import Host
from dra_sdk.model.omissions import leave_out

MAX_NUMA_NODE = 1023
"""Largest NUMA node that Linux can have."""

LOCAL_DISTANCE = 10
"""Distance of a node to itself, as the ACPI SLIT defines it."""

_MEM_TOTAL = re.compile(r"^(?:Node \d+ )?MemTotal:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HugePages:
    """Huge pages of one size on one node.

    size: size of one page in bytes.
    total: number of pages; 0 if it cannot be read.
    free: number of free pages; 0 if it cannot be read.
    """

    size: int
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One online NUMA node.

    id: number of the node.
    cpus: online CPUs. Empty for a node with memory only, or if they cannot be read.
    memory: memory in bytes, including huge pages. 0 if it cannot be read, or if not all numbers of huge pages can: how
        much of it is ordinary memory is then not known.
    hugepages: huge pages, ascending by size.
    distances: distance (ACPI SLIT) to every online node by its number, including this one. Empty if it cannot be read.
    """

    id: int
    cpus: CpuSet
    memory: int
    hugepages: tuple[HugePages, ...]
    distances: Mapping[int, int]


def read_numa_nodes(host: Host) -> tuple[NumaNode, ...]:
    """Return all online nodes of `host`, ascending by number.

    What cannot be read of a node is left out and remembered. HardwareError if the nodes cannot be listed.
    """
    directories = numbered_paths(_nodes(host), "node")
    if not directories:
        return (_only_node(host),)
    return tuple(_read_node(node, path, list(directories)) for node, path in directories.items())


def read_numa_cpus(host: Host, online: CpuSet | None = None) -> dict[int, CpuSet]:
    """Return only the online CPUs of each node. `{0: all}` on a kernel without NUMA support.

    A CPU that is in no list, as when that of its node cannot be read, is where its own link says. `online` are the
    host's CPUs if they have been read before.
    """
    cpus = _online(host) if online is None else online
    directories = numbered_paths(_nodes(host), "node")
    if not directories:
        return {0: cpus}
    nodes = {node: read_optional(read_cpuset, path / "cpulist") or frozenset() for node, path in directories.items()}
    for cpu in sorted(cpus.difference(*nodes.values())):
        own = read_optional(_linked_nodes, host.sys / f"devices/system/cpu/cpu{cpu}") or {}
        nodes |= {node: nodes[node] | {cpu} for node in own if node in nodes}
    return nodes


def _linked_nodes(cpu: Path) -> dict[int, Path]:
    return numbered_paths(cpu, "node")


def _nodes(host: Host) -> Path:
    return host.sys / "devices/system/node"


def _online(host: Host) -> CpuSet:
    return read_cpuset(host.sys / "devices/system/cpu/online")


def _only_node(host: Host) -> NumaNode:
    hugepages, memory = _read_pages("the machine", host.proc / "meminfo", host.sys / "kernel/mm/hugepages")
    return NumaNode(id=0, cpus=_online(host), memory=memory, hugepages=hugepages, distances={0: LOCAL_DISTANCE})


def _read_node(node: int, path: Path, online: list[int]) -> NumaNode:
    hugepages, memory = _read_pages(f"NUMA node {node}", path / "meminfo", path / "hugepages")
    return NumaNode(
        id=node,
        cpus=read_optional(read_cpuset, path / "cpulist") or frozenset(),
        memory=memory,
        hugepages=hugepages,
        distances=read_optional(partial(_read_distances, online), path / "distance") or {},
    )


def _read_distances(online: list[int], path: Path) -> dict[int, int]:
    # One number for each online node in ascending order: with nodes 0 and 8, the second number is for node 8.
    figures = read_text(path).split()
    if len(figures) != len(online) or not all(figure.isdecimal() for figure in figures):
        raise HardwareError(
            f"{path}: expected {len(online)} distances, one for each node, found {quoted(str(figures))}"
        )
    return dict(zip(online, map(int, figures), strict=True))


def _read_pages(where: str, meminfo: Path, directory: Path) -> tuple[tuple[HugePages, ...], int]:
    """Return the huge pages of a node, and its memory in bytes: 0 if it is not known, so that it is not given away."""
    hugepages, known = [], True
    try:
        names = [re.fullmatch(r"hugepages-(\d+)kB", name) for name in entries(directory)]
    except HardwareError as error:
        leave_out(f"memory of {where}", error)
        return (), 0
    for kib in sorted(int(name[1]) for name in names if name):
        path = directory / f"hugepages-{kib}kB"
        total = 0
        try:
            total = read_int(path / "nr_hugepages")
        except HardwareError as error:
            leave_out(f"memory of {where}", error)
            known = False
        free = read_optional(read_int, path / "free_hugepages") or 0
        hugepages.append(HugePages(size=kib * 1024, total=total, free=free))
    try:
        return tuple(hugepages), _read_memory(meminfo) if known else 0
    except HardwareError as error:
        leave_out(f"memory of {where}", error)
        return tuple(hugepages), 0


def _read_memory(path: Path) -> int:
    match = _MEM_TOTAL.search(read_text(path))
    if match is None:
        raise HardwareError(f"{path}: no line MemTotal in kB")
    return int(match[1]) * 1024
