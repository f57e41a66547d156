"""Which CPUs a claim gets out of those that are free: a pure function of topology, free CPUs and number wanted.

What counts, in this order:

1. Whole cores. A claim shares a core with another only as far as its number makes it (5 CPUs on two-threaded cores:
   two cores and one thread), or when no whole core is left.
2. One kind of core. On a hybrid machine all come from the fastest kind that has enough; only if none has, from both.
3. Nearness. All in one L3 cache if one can hold them without costing whole cores, else in one NUMA node, else in one
   socket, else in as few as possible.
4. No new fragments. A left-over thread goes to a half-used core, and among caches, nodes and sockets that can hold the
   claim the fullest is used, so that the empty ones stay whole.
5. The lowest number, so that the same question always has the same answer.

The order of the kubelet's static policy and of the upstream CPU driver (whole sockets and nodes, whole caches, cores,
threads) follows from these, with differences on purpose:

- A core is known by its lowest thread, never by `core_id`, which repeats across sockets; and how many threads make a
  whole core comes from that core, never from an average. Hybrid machines, four threads to a core and cores with a
  thread offline are therefore no special cases.
- Upstream opens a new L3 cache where a used one has room but also a half-used core; here the used one is filled.
- Upstream takes cores by number when no cache holds all; here those of the caches with most room, so fewer are touched.
- Upstream would rather split a core in a fuller cache than use the half-used core of an emptier one; here not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from dra_sdk import PermanentError, RetriableError
from dra_sdk.hardware import Cpu, CpuSet, CpuTopology, format_cpuset

_Level = Callable[[Cpu], int | None]


class NotEnoughCpusError(RetriableError):
    """Fewer CPUs are free than wanted; another attempt can succeed once a claim has given some back."""


class CoreAlignmentError(PermanentError):
    """Whole cores are wanted, but the number wanted is not a sum of whole cores."""


@dataclass(frozen=True, slots=True)
class PickPolicy:
    """How to pick. With `full_cores` only whole cores are given out (the kubelet's `full-pcpus-only`)."""

    full_cores: bool = False


PACKED = PickPolicy()
"""The default: packed, down to single threads."""


def pick(topology: CpuTopology, available: CpuSet, need: int, policy: PickPolicy = PACKED) -> CpuSet:
    """`need` of the `available` CPUs. Never takes others, so give those of one device's group only.

    Raises NotEnoughCpusError with what is needed and had; CoreAlignmentError where `policy` wants whole cores and
    `need` is not a sum of them; ValueError if `need` is below 1 or a CPU in `available` is not online.
    """
    if need < 1:
        raise ValueError(f"need {need} CPUs: must be 1 or more")
    strangers = available - topology.online
    if strangers:
        raise ValueError(f"CPUs {format_cpuset(strangers)} are not online, so they are not available")
    picker = _Picker(topology)
    if policy.full_cores:
        available = _in_whole_cores(picker, available, need)
    elif need > len(available):
        raise NotEnoughCpusError(f"need {need} CPUs, have {len(available)}: {format_cpuset(available) or 'none'}")
    return picker.place(picker.one_kind(available, need, loose=0 if policy.full_cores else need), need)


def _in_whole_cores(picker: _Picker, available: CpuSet, need: int) -> CpuSet:
    """The `available` CPUs that are whole cores, if `need` can be made of these."""
    whole: CpuSet = frozenset().union(*picker.whole_cores(available))
    if need <= len(whole) and not picker.loose(whole, need):
        return whole
    online = picker.topology.online
    if need <= len(online) and picker.loose(online, need):
        threads = max(map(len, picker.topology.cores.values()))
        raise CoreAlignmentError(f"need {need} CPUs in whole cores, which have {threads} threads: ask for a multiple")
    raise NotEnoughCpusError(
        f"need {need} CPUs in whole cores, the free whole cores have {len(whole)}: {format_cpuset(whole) or 'none'}"
    )


class _Picker:
    """The steps of `pick` on one topology. In all of them `free` holds at least `need` CPUs."""

    def __init__(self, topology: CpuTopology) -> None:
        self.topology = topology
        socket, node = (lambda cpu: cpu.socket), (lambda cpu: cpu.numa_node)
        nested = len(topology.numa_nodes) >= len(topology.sockets)
        self._levels: tuple[_Level, ...] = (*((socket, node) if nested else (node, socket)), lambda cpu: cpu.l3)

    def one_kind(self, free: CpuSet, need: int, loose: int) -> CpuSet:
        """CPUs of the fastest kind of core that holds `need`, at most `loose` as single threads; else `free`."""
        slow = frozenset(cpu for cpu in free if self.topology.by_id[cpu].core_type == "e-core")
        for kind in (free - slow, slow):
            if len(kind) >= need and self.loose(kind, need) <= loose:
                return kind
        return free

    def place(self, free: CpuSet, need: int, outer: int = 0) -> CpuSet:
        """`need` CPUs, near each other. The first `outer` levels are settled: all of `free` is in one part of them."""
        for depth in range(len(self._levels), outer, -1):
            fitting = [part for part in self._split(free, depth) if self._holds(part, free, need)]
            if fitting:
                best = min(fitting, key=lambda part: self._waste(part, free, need, depth))
                return self.place(best, need, depth)
        if outer == len(self._levels):
            return self._take(free, need)
        return self._spread(free, need, outer)

    def _spread(self, free: CpuSet, need: int, outer: int) -> CpuSet:
        """No part of the next level holds all: all whole cores of the one with most, then the rest elsewhere."""
        parts = self._split(free, outer + 1)
        richest = max(parts, key=lambda part: (len(self._take_whole(part, need)), len(part), -min(part)))
        taken = self._take_whole(richest, need) or richest
        if len(taken) >= need or self.loose(free - taken, need - len(taken)) > self.loose(free, need):
            # Cores differ in size, or one lies in two parts: starting here would cost whole cores.
            return self._take(free, need)
        return taken | self.place(free - taken, need - len(taken), outer)

    def _holds(self, part: CpuSet, free: CpuSet, need: int) -> bool:
        return len(part) >= need and self.loose(part, need) <= self.loose(free, need)

    def _waste(self, part: CpuSet, free: CpuSet, need: int, depth: int) -> tuple[int, ...]:
        """Lower is better: a whole core broken, then room left in the socket, the node and the cache, then number."""
        halves = len(part) - sum(map(len, self.whole_cores(part)))
        broken = int(self.loose(part, need) > halves)
        around = (next(p for p in self._split(free, level) if part <= p) for level in range(1, depth + 1))
        return (broken, *(len(p) for p in around), min(part))

    def _split(self, free: CpuSet, depth: int) -> list[CpuSet]:
        """`free` by the first `depth` levels taken together: a cache over two nodes counts as two."""
        parts: dict[tuple[int | None, ...], set[int]] = {}
        for cpu in free:
            key = tuple(level(self.topology.by_id[cpu]) for level in self._levels[:depth])
            parts.setdefault(key, set()).add(cpu)
        return [frozenset(part) for part in parts.values()]

    def whole_cores(self, free: CpuSet) -> list[CpuSet]:
        """Cores of which all online threads are free, largest first, then by number."""
        cores = {self.topology.siblings(cpu) for cpu in free}
        return sorted((core for core in cores if core <= free), key=lambda core: (-len(core), min(core)))

    def loose(self, free: CpuSet, need: int) -> int:
        """How many of `need` have to be single threads."""
        return need - len(self._take_whole(free, need))

    def _take_whole(self, free: CpuSet, need: int) -> CpuSet:
        taken: CpuSet = frozenset()
        for core in self.whole_cores(free):
            if len(core) <= need - len(taken):
                taken |= core
        return taken

    def _take(self, free: CpuSet, need: int) -> CpuSet:
        """Whole cores, then threads of the cores with fewest free ones."""
        taken = self._take_whole(free, need)
        rest = free - taken
        room = {cpu: len(self.topology.siblings(cpu) & rest) for cpu in rest}
        core = {cpu: self.topology.by_id[cpu].core for cpu in rest}
        singles = sorted(rest, key=lambda cpu: (room[cpu], core[cpu], cpu))
        return taken.union(islice(singles, need - len(taken)))
