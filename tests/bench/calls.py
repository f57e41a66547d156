"""How long the kubelet's calls take: prepare, the same prepare again, unprepare; with no claim held and with many.

Both drivers get the same call right after each other, in an order drawn anew each time, so what the machine does
meanwhile meets both.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from dra_sdk.simulator.kubelet import ClaimRef
from tests.bench.contestants import Running
from tests.bench.node import Node
from tests.bench.stats import Pair

OPERATIONS = ("prepare", "repeated prepare", "unprepare")
_WARM_UP = 20
AT_ONCE = 8
"""Claims prepared in parallel in a burst, as when a node's pods all start: the kubelet calls once per pod."""


@dataclass(frozen=True)
class Side:
    """One driver under load, and its claims."""

    running: Running
    node: Node
    claims: Sequence[ClaimRef]

    def hold(self, count: int) -> None:
        """Prepare the first `count` claims."""
        for claim in self.claims[:count]:
            self.node.prepare(claim)

    def operation(self, name: str) -> Callable[[ClaimRef], float]:
        """What carries out one of OPERATIONS."""
        return self.node.unprepare if name == "unprepare" else self.node.prepare


@dataclass
class CallTimes:
    """Seconds of each operation, in pairs; CPU seconds of both drivers per round, which is one of each operation."""

    held: int
    pairs: dict[str, list[Pair]] = field(default_factory=lambda: {name: [] for name in OPERATIONS})
    cpu: Pair = (0.0, 0.0)
    rss_mib: Pair = (0.0, 0.0)


def measure_calls(
    sides: tuple[Side, Side], held: int, *, rounds: int, seconds: float, draw: random.Random
) -> CallTimes:
    """Hold `held` claims on both sides, then do `rounds` rounds on the others, or as many as `seconds` allow."""
    ours, theirs = sides
    for side in sides:
        side.hold(held)
    times = CallTimes(held)
    for turn in range(_WARM_UP):
        _round(sides, held, turn, draw)
    gc.collect()
    before = (ours.running.cpu_seconds(), theirs.running.cpu_seconds())
    deadline = time.monotonic() + seconds
    done = 0
    while done < rounds and (not done or time.monotonic() < deadline):
        for name, pair in _round(sides, held, done, draw).items():
            times.pairs[name].append(pair)
        done += 1
    after = (ours.running.cpu_seconds(), theirs.running.cpu_seconds())
    times.cpu = ((after[0] - before[0]) / done, (after[1] - before[1]) / done)
    times.rss_mib = (ours.running.rss_mib(), theirs.running.rss_mib())
    for side in sides:
        for claim in side.claims[:held]:
            side.node.unprepare(claim)
    return times


def measure_bursts(sides: tuple[Side, Side], count: int, bursts: int, draw: random.Random) -> list[Pair]:
    """The seconds until `count` claims are prepared, AT_ONCE at a time."""
    pairs = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in range(bursts):
            seconds = [0.0, 0.0]
            for index in draw.sample((0, 1), 2):
                side, claims = sides[index], sides[index].claims[:count]
                began = time.perf_counter()
                list(pool.map(side.node.prepare, claims))
                seconds[index] = time.perf_counter() - began
                list(pool.map(side.node.unprepare, claims))
            pairs.append((seconds[0], seconds[1]))
    return pairs


def _round(sides: tuple[Side, Side], held: int, turn: int, draw: random.Random) -> dict[str, Pair]:
    """Each operation once on both sides, with the next of the claims that are not held."""
    found = {}
    for name in OPERATIONS:
        seconds = [0.0, 0.0]
        for index in draw.sample((0, 1), 2):
            free = sides[index].claims[held:]
            seconds[index] = sides[index].operation(name)(free[turn % len(free)])
        found[name] = (seconds[0], seconds[1])
    return found
