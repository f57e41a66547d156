"""Sets of CPU numbers, and the list format in which the kernel writes them, such as `0-3,8`.

Source: "List format" in cpuset(7). The kubelet's `reservedSystemCPUs`, NRI's `cpus` and cgroup's `cpuset.cpus` use the
same format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

CpuSet = frozenset[int]
"""A set of CPU numbers of the kernel."""

MAX_CPU = 65535
"""Largest CPU number: eight times more than any kernel supports, and small enough to expand a range."""

_ELEMENT = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


def parse_cpuset(text: str) -> CpuSet:
    """Return the CPUs in a list such as `0-3,8`. Empty text, or only white space, is the empty set.

    Raises ValueError that quotes the wrong element: not a number or range, a range that runs backwards, or a number
    above `MAX_CPU`. The kernel's stride form `0-31:2/4` is refused, because the kernel writes no file in it.
    """
    stripped = text.strip()
    if not stripped:
        return frozenset()
    return frozenset().union(*(_parse_element(element, stripped) for element in stripped.split(",")))


def _parse_element(element: str, text: str) -> range:
    match = _ELEMENT.fullmatch(element)
    if match is None:
        raise ValueError(f"CPU list {text!r}: {element!r} is neither a CPU number nor a range such as 0-3")
    first, last = int(match[1]), int(match[2] or match[1])
    if first > last:
        raise ValueError(f"CPU list {text!r}: the range {element!r} runs backwards")
    if last > MAX_CPU:
        raise ValueError(f"CPU list {text!r}: {element!r} is above the largest CPU number, {MAX_CPU}")
    return range(first, last + 1)


def format_cpuset(cpus: Iterable[int]) -> str:
    """Return the shortest list of `cpus`, ascending, as the kernel writes it. The empty set is empty text."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)
