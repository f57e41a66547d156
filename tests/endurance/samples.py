"""What a driver's process uses, sampled between pods, and whether that stays the same over the life of the process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from dra_sdk.node.runtime.sockets import REGISTRAR_THREADS, SERVICE_THREADS

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
WARM_UP = 0.2
"""The share of a life's samples before the first that is compared: allocator and caches fill first."""
FEWEST = 10
"""Samples of a life that is judged; of shorter ones only descriptors and threads are, by `SPARE_SHORT`."""
MEMORY_GROWTH = 3.0
"""MiB by which the memory may grow in the rest of a life."""
TIME_GROWTH = 1.35
"""How much more processor time a claim may take at the end of a life than at its beginning."""
SPARE_DESCRIPTORS = 8
"""Descriptors by which samples may differ: idle connections to the API server, and a client that just connects."""
SPARE_THREADS = 8
"""Threads likewise: gRPC starts a thread of its pool when none is free, and keeps it."""
SPARE_SHORT = SERVICE_THREADS + REGISTRAR_THREADS + SPARE_THREADS
"""Both, between two single samples of a short life: all threads of the pools, with a connection each, have started."""


@dataclass(frozen=True)
class Sample:
    """One driver when no pod was being started or stopped.

    pods: how many pods had come and gone.
    life: which process of the driver, from 1.
    memory: resident memory in MiB.
    descriptors: open file descriptors.
    threads: threads.
    files: files in its plugin data directory.
    specs: its CDI specs.
    claims: claims that were prepared and unprepared since the last sample.
    processor: seconds of processor time since the last sample; None if the process is younger.
    p50: median duration of a prepare since then, in seconds.
    p99: of these, the 99th percentile.
    """

    pods: int
    life: int
    memory: float
    descriptors: int
    threads: int
    files: int
    specs: int
    claims: int
    processor: float | None
    p50: float
    p99: float


@dataclass(frozen=True)
class Usage:
    """What the kernel says of a process now: memory in MiB, descriptors, threads, seconds of processor time."""

    memory: float
    descriptors: int
    threads: int
    processor: float


def usage(pid: int) -> Usage:
    """Read /proc (proc(5): statm, fd, stat)."""
    process = Path(f"/proc/{pid}")
    stat = (process / "stat").read_text().rpartition(")")[2].split()
    return Usage(
        memory=int((process / "statm").read_text().split()[1]) * _PAGE / (1 << 20),
        descriptors=len(list((process / "fd").iterdir())),
        threads=int(stat[17]),
        processor=(int(stat[11]) + int(stat[12])) / _TICKS,
    )


def lives(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples of each process."""
    found: dict[int, list[Sample]] = {}
    for each in samples:
        found.setdefault(each.life, []).append(each)
    return list(found.values())


def growth(life: Sequence[Sample], value: Callable[[Sample], float | None]) -> tuple[float, float] | None:
    """The medians of the first and the last third after the warm-up; None for a life that is too short."""
    numbers = [found for each in life[int(WARM_UP * len(life)) :] if (found := value(each)) is not None]
    if len(life) < FEWEST or not numbers:
        return None
    third = max(1, len(numbers) // 3)
    return median(numbers[:third]), median(numbers[-third:])


def time_per_claim(sample: Sample) -> float | None:
    """Milliseconds of processor time for a claim's prepare and unprepare."""
    return None if sample.processor is None or not sample.claims else 1000 * sample.processor / sample.claims


def too_short(driver: str, samples: Sequence[Sample]) -> list[str]:
    """The lives whose memory and processor time are not judged, each in a sentence."""
    return [
        f"{driver}, life {life[0].life}: {len(life)} samples, its memory and processor time are not judged ({FEWEST})"
        for life in lives(samples)
        if len(life) < FEWEST
    ]


def complaints(driver: str, samples: Sequence[Sample], *, claims: int) -> list[str]:
    """What is not flat, each in a sentence. `claims` are those that the driver holds at each sample."""
    found = [
        f"{driver}: {each.files} state files and {each.specs} CDI specs for {claims} claims after {each.pods} pods"
        for each in samples
        if (each.files, each.specs) != (claims, claims)
    ]
    for life in lives(samples):
        where = f"{driver}, life {life[0].life}, {life[0].pods} to {life[-1].pods} pods"
        counts: tuple[tuple[str, Callable[[Sample], int], int], ...] = (
            ("descriptors", lambda each: each.descriptors, SPARE_DESCRIPTORS),
            ("threads", lambda each: each.threads, SPARE_THREADS),
        )
        for what, value, spare in counts:
            ends = growth(life, value)
            first, last = ends or (value(life[0]), value(life[-1]))
            if last > first + (spare if ends else SPARE_SHORT):
                found.append(f"{where}: {what} grew from {first:g} to {last:g}")
        memory = growth(life, lambda each: each.memory)
        if memory and memory[1] > memory[0] + MEMORY_GROWTH:
            found.append(f"{where}: memory grew from {memory[0]:.1f} to {memory[1]:.1f} MiB")
        time = growth(life, time_per_claim)
        if time and time[1] > time[0] * TIME_GROWTH:
            found.append(f"{where}: processor time of a claim grew from {time[0]:.2f} to {time[1]:.2f} ms")
    return found
