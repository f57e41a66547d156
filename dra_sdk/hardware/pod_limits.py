"""What all pods of a node together may use: the limits of the kubelet's cgroup `kubepods`.

The kubelet makes it for all pods, and limits it to what the node can allocate; an operator may limit it further. A
driver that publishes more than that publishes what no pod gets. Where the cgroup is not visible there are no limits.

Source: kubelet `--enforce-node-allocatable`, `--cgroup-root`, `--cgroup-driver`; cgroup-v2.rst; cpuset(7).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

from dra_sdk.hardware.cpu import CpuTopology
from dra_sdk.hardware.cpuset import CpuSet, parse_cpuset
from dra_sdk.hardware.host import entries, exists, is_directory, read_optional, read_text
from dra_sdk.model.driver import Host

T = TypeVar("T")
_PLACES: Final = ("kubepods.slice", "kubepods", "kubelet.slice/kubelet-kubepods.slice", "kubelet/kubepods")
_UNLIMITED: Final = 1 << 62  # cgroup v1 writes a number of about 2^63
_UNITS: Final = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_PAGES: Final = re.compile(r"hugetlb\.(\d+)([KMG]B)\.(?:max|limit_in_bytes)")


@dataclass(frozen=True, slots=True)
class PodLimits:
    """The limits of all pods of a node together.

    cpus: the CPUs that they may use; None without a limit.
    mems: the NUMA nodes of which they may use memory; None without a limit.
    memory: bytes of memory; None without a limit.
    hugepages: bytes of huge pages by page size in bytes; a size without a limit is missing.
    """

    cpus: CpuSet | None = None
    mems: CpuSet | None = None
    memory: int | None = None
    hugepages: Mapping[int, int] = field(default_factory=dict)


def usable_topology(machine: CpuTopology, cpus: CpuSet | None) -> CpuTopology:
    """Return a machine on which the CPUs that no pod may use are switched off; `cpus` is what `read_pod_cpus` returns.

    A limit that has none of the machine's CPUs is none.
    """
    if cpus is None or machine.online <= cpus or not machine.online & cpus:
        return machine
    usable = tuple(cpu for cpu in machine.cpus if cpu.id in cpus)
    return replace(machine, cpus=usable, offline=machine.offline | (machine.online - cpus))


def read_pod_limits(host: Host) -> PodLimits:
    """Return the limits of all pods of a node; a file that the kernel refuses to read limits nothing."""
    memory, hugetlb = _kubepods(host, "memory"), _kubepods(host, "hugetlb")
    return PodLimits(
        read_pod_cpus(host),
        _first(_kubepods(host, "cpuset"), ("cpuset.mems.effective", "cpuset.effective_mems", "cpuset.mems"), _cpuset),
        _first(memory, ("memory.max", "memory.limit_in_bytes"), _bytes),
        _hugepages(hugetlb),
    )


def read_pod_cpus(host: Host) -> CpuSet | None:
    """Return only the CPUs that pods may use; None without a limit."""
    names = "cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"
    return _first(_kubepods(host, "cpuset"), names, _cpuset)


def _kubepods(host: Host, controller: str) -> Path | None:
    """Return the cgroup of all pods in the hierarchy of a controller; None if it is not visible."""
    root = host.sys / "fs/cgroup"
    hierarchy = root if exists(root / "cgroup.controllers") else root / controller
    return next((hierarchy / place for place in _PLACES if is_directory(hierarchy / place)), None)


def _first(directory: Path | None, names: tuple[str, ...], parse: Callable[[str], T | None]) -> T | None:
    """Return the first of some files that exists and says something."""
    if directory is None:
        return None
    for name in names:
        with suppress(ValueError):  # not as expected
            if (value := parse(read_optional(read_text, directory / name) or "")) is not None:
                return value
    return None


def _cpuset(text: str) -> CpuSet | None:
    return parse_cpuset(text) or None


def _bytes(text: str) -> int | None:
    limit = int(text) if text.isdecimal() else None
    return limit if limit is not None and limit < _UNLIMITED else None


def _hugepages(directory: Path | None) -> dict[int, int]:
    if directory is None:
        return {}
    limits = {}
    for name in read_optional(entries, directory) or ():
        if match := _PAGES.fullmatch(name):
            limit = _first(directory, (name,), _bytes)
            if limit is not None:
                limits[int(match[1]) * _UNITS[match[2]]] = limit
    return limits
