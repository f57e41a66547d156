"""Sets of CPU numbers and the list syntax the kernel writes them in, such as `0-3,8`.

Source: "List format" in the kernel's cpuset documentation (cpuset(7)); the same syntax is used by the kubelet's
`reservedSystemCPUs`, by NRI's `cpus` and by cgroup's `cpuset.cpus`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

CpuSet = frozenset[int]
"""A set of CPU numbers as the kernel counts them."""

MAX_CPU = 65535
"""Largest CPU number accepted: eight times what any kernel supports, small enough to expand a range of it."""

_ELEMENT = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


def parse_cpuset(text: str) -> CpuSet:
    """The CPUs that `text` lists, e.g. `0-3,8`; an empty text (or only white space around it) is the empty set.

    Raises ValueError that quotes the element at fault: not a number or range, a range that runs backwards, or a
    number above `MAX_CPU`. The kernel's stride form `0-31:2/4` is refused, because no file of it is written so.
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
    """The shortest list of `cpus`, ascending, as the kernel prints it; the empty set gives an empty text."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)
