"""What kind of memory a NUMA node has: ordinary memory, or that of accelerators, CXL, persistent or fast memory.

A node with CPUs has ordinary memory. Of a node without, the driver of an accelerator, the dax device that became the
memory, or the tier in which the kernel has it says what it is. Not seen on hardware: the file of NVIDIA's driver.

Source: Documentation/ABI/testing/sysfs-kernel-mm-memory-tiers and sysfs-bus-dax; NVIDIA driver, `numa_status`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final

from dra_sdk.hardware.cpuset import CpuSet, parse_cpuset
from dra_sdk.hardware.host import entries, exists, numbered_paths, read_optional, read_text, real_path
from dra_sdk.hardware.numa import NumaNode
from dra_sdk.model.driver import Host

_NVIDIA_NODE: Final = re.compile(r"^Node:\s*(\d+)\s*$", re.MULTILINE)


class MemoryKind(StrEnum):
    """A kind of memory."""

    ORDINARY = "ordinary"
    ACCELERATOR = "accelerator"
    CXL = "cxl"
    PERSISTENT = "persistent"
    FAST = "fast"
    """Faster than that of nodes with CPUs, such as high bandwidth memory."""
    SLOW = "slow"
    """Slower than that of nodes with CPUs, and nothing says why."""
    UNKNOWN = "unknown"


def read_memory_kinds(host: Host, nodes: Iterable[NumaNode]) -> dict[int, MemoryKind]:
    """Return the kind of memory of each NUMA node, by its number. A file that cannot be read says nothing."""
    nodes = tuple(nodes)
    with_cpus = {node.id for node in nodes if node.cpus or _has_cpus_offline(host, node.id)}
    kinds = dict.fromkeys(with_cpus, MemoryKind.ORDINARY)
    others = [node.id for node in nodes if node.id not in with_cpus]
    if others and with_cpus:
        told = {**_kinds_by_dax(host), **dict.fromkeys(_nodes_of_accelerators(host), MemoryKind.ACCELERATOR)}
        tiers = _tiers(host)
        kinds |= {node: told.get(node) or _kind_by_tier(tiers, node, with_cpus) for node in others}
    return {node.id: kinds.get(node.id, MemoryKind.ORDINARY) for node in nodes}


def _has_cpus_offline(host: Host, node: int) -> bool:
    """Return whether a node without an online CPU has CPUs."""
    cpus = numbered_paths(host.sys / "devices/system/cpu", "cpu").values()
    return any(read_optional(exists, cpu / f"node{node}") for cpu in cpus)


def _kind_by_tier(tiers: dict[int, int], node: int, with_cpus: set[int]) -> MemoryKind:
    """Compare the tiers of the kernel: the lower the number, the faster."""
    known = [tiers[other] for other in with_cpus if other in tiers]
    if node not in tiers or not known:
        return MemoryKind.UNKNOWN
    if tiers[node] < min(known):
        return MemoryKind.FAST
    return MemoryKind.SLOW if tiers[node] > max(known) else MemoryKind.ORDINARY


def _tiers(host: Host) -> dict[int, int]:
    """Return the tier of each NUMA node, as far as the kernel has tiers."""
    tiers = numbered_paths(host.sys / "devices/virtual/memory_tiering", "memory_tier")
    return {node: tier for tier, path in tiers.items() for node in _cpuset(path / "nodelist")}


def _kinds_by_dax(host: Host) -> dict[int, MemoryKind]:
    kinds: dict[int, MemoryKind] = {}
    devices = host.sys / "bus/dax/devices"
    for path in (devices / name for name in read_optional(entries, devices) or () if name.startswith("dax")):
        where = str(read_optional(real_path, path) or "")
        kind = MemoryKind.CXL if "/cxl" in where or "/root0/decoder" in where else None
        kind = MemoryKind.PERSISTENT if "/ndbus" in where else kind
        if kind is not None:
            kinds |= dict.fromkeys(_cpuset(path / "target_node"), kind)
    return kinds


def _nodes_of_accelerators(host: Host) -> set[int]:
    gpus = host.proc / "driver/nvidia/gpus"
    texts = (_text(gpus / name / "numa_status") for name in read_optional(entries, gpus) or ())
    return {int(match[1]) for text in texts for match in _NVIDIA_NODE.finditer(text)}


def _cpuset(path: Path) -> CpuSet:
    try:
        return parse_cpuset(_text(path))
    except ValueError:  # such as -1, for no node
        return frozenset()


def _text(path: Path) -> str:
    return read_optional(read_text, path) or ""
