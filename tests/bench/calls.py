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

from dra_sdk.model.claim import ClaimRef
from tests.bench.contestants import Running
from tests.bench.node import Node
from tests.bench.stats import Pair

OPERATIONS = ("prepare", "repeated prepare", "unprepare")
_WARM_UP = 10
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

    def release(self, count: int) -> None:
        """Unprepare them."""
        for claim in self.claims[:count]:
            self.node.unprepare(claim)

    def operation(self, name: str) -> Callable[[ClaimRef], float]:
        """What carries out one of OPERATIONS."""
        return self.node.unprepare if name == "unprepare" else self.node.prepare


@dataclass
class CallTimes:
    """Seconds of each operation, in pairs; CPU seconds of both drivers over `rounds`, each one of each operation."""

    held: int
    pairs: dict[str, list[Pair]] = field(default_factory=lambda: {name: [] for name in OPERATIONS})
    cpu: Pair = (0.0, 0.0)
    rss_mib: Pair = (0.0, 0.0)
    rounds: int = 0

    def cost(self, sides: tuple[Side, Side]) -> Pair:
        """Remember the memory of both sides; the CPU seconds they have used so far."""
        ours, theirs = (side.running for side in sides)
        self.rss_mib = (ours.rss_mib(), theirs.rss_mib())
        return ours.cpu_seconds(), theirs.cpu_seconds()

    def add(self, found: dict[str, Pair]) -> None:
        """One more round."""
        for name, pair in found.items():
            self.pairs[name].append(pair)
        self.rounds += 1


def measure_calls(
    sides: tuple[Side, Side], held: Sequence[int], *, blocks: int, rounds: int, seconds: float, draw: random.Random
) -> list[CallTimes]:
    """Rounds with each number of claims held on both sides, by turns in blocks: the machine and the API server change.

    A block is `rounds` rounds on claims that are not held, or as many as `seconds` allow.
    """
    times = [CallTimes(count) for count in held]
    for _ in range(blocks):
        for each in times:
            for side in sides:
                side.hold(each.held)
            _block(sides, each, rounds, seconds, draw)
            for side in sides:
                side.release(each.held)
    return times


def _block(sides: tuple[Side, Side], times: CallTimes, rounds: int, seconds: float, draw: random.Random) -> None:
    for turn in range(_WARM_UP):
        _round(sides, times.held, turn, draw)
    gc.collect()
    before, deadline = times.cost(sides), time.monotonic() + seconds
    for turn in range(rounds):
        times.add(_round(sides, times.held, turn, draw))
        if time.monotonic() > deadline:
            break
    after = times.cost(sides)
    times.cpu = (times.cpu[0] + after[0] - before[0], times.cpu[1] + after[1] - before[1])


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
