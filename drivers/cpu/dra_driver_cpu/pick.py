"""Which CPUs a claim gets: a pure function of the topology, the free CPUs, and the number the claim needs.

The rules, the most important first:

1. Whole cores. A claim shares a core with another claim only if its number requires it (5 CPUs on cores with two
   threads: two cores and one thread), or if no whole core is left.
2. One kind of core. On a hybrid machine all CPUs come from the fastest kind that has enough, or from both if none has.
3. Nearness. All CPUs are in one L3 cache if that costs no whole core, else in one NUMA node, else in one socket, else
   in as few parts as possible.
4. No new fragments. A single thread comes from a core that is partly used. Of the caches, nodes and sockets that can
   hold the claim, the one with the fewest free CPUs is used, so that the empty ones stay whole.
5. The lowest number, so that the same input always gives the same CPUs.

The order of the kubelet's static policy and of the upstream CPU driver (whole sockets and nodes, whole caches, cores,
threads) follows from these rules. Four differences are intended:

- A core is identified by its lowest thread, never by `core_id`, which repeats across sockets; and the number of threads
  of a whole core is that core's own, never an average. So hybrid machines, cores with four threads, and cores with an
  offline thread need no special case.
- Upstream uses an empty L3 cache if a used one has enough free CPUs but also a partly used core; here the used one is
  filled.
- Upstream takes cores by number if no cache holds all; here the caches with the most free CPUs come first, so that
  fewer are used.
- Upstream splits a core in a cache with fewer free CPUs before it uses the partly used core of another; here not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from dra_sdk import PermanentError, RetriableError
from dra_sdk.hardware import Cpu, CpuSet, CpuTopology, format_cpuset

_Level = Callable[[Cpu], int | None]


class NotEnoughCpusError(RetriableError):
    """Fewer CPUs are free than the claim needs; a later attempt succeeds if another claim has returned some."""


class CoreAlignmentError(PermanentError):
    """Only whole cores are allowed, and no set of whole cores has the number of CPUs that the claim needs."""


@dataclass(frozen=True, slots=True)
class PickPolicy:
    """How to pick CPUs.

    full_cores: pick whole cores only, as `full-pcpus-only` of the kubelet does.
    """

    full_cores: bool = False


PACKED = PickPolicy()
"""The default: whole cores first, then single threads."""


def pick(topology: CpuTopology, available: CpuSet, need: int, policy: PickPolicy = PACKED) -> CpuSet:
    """Pick `need` of the `available` CPUs.

    Raises NotEnoughCpusError if too few are available, CoreAlignmentError if `policy` asks for whole cores and no set
    of them has `need` CPUs, ValueError if `need` is below 1 or a CPU in `available` is not online.
    """
    if need < 1:
        raise ValueError(f"need {need} CPUs: must be 1 or more")
    offline = available - topology.online
    if offline:
        raise ValueError(f"CPUs {format_cpuset(offline)} are not online, so they are not available")
    picker = _Picker(topology)
    if policy.full_cores:
        available = _in_whole_cores(picker, available, need)
    elif need > len(available):
        raise NotEnoughCpusError(f"need {need} CPUs, have {len(available)}: {format_cpuset(available) or 'none'}")
    return picker.place(picker.one_kind(available, need, loose=0 if policy.full_cores else need), need)


def _in_whole_cores(picker: _Picker, available: CpuSet, need: int) -> CpuSet:
    """The `available` CPUs that form whole cores. Raises the errors of `pick` if `need` cannot come from them."""
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
    """The steps of `pick` on one topology. In every step `free` has at least `need` CPUs."""

    def __init__(self, topology: CpuTopology) -> None:
        self.topology = topology
        socket, node = (lambda cpu: cpu.socket), (lambda cpu: cpu.numa_node)
        nested = len(topology.numa_nodes) >= len(topology.sockets)
        self._levels: tuple[_Level, ...] = (*((socket, node) if nested else (node, socket)), lambda cpu: cpu.l3)

    def one_kind(self, free: CpuSet, need: int, loose: int) -> CpuSet:
        """The CPUs of the fastest kind of core that has `need`, at most `loose` of them single threads; else `free`."""
        slow = frozenset(cpu for cpu in free if self.topology.by_id[cpu].core_type == "e-core")
        for kind in (free - slow, slow):
            if len(kind) >= need and self.loose(kind, need) <= loose:
                return kind
        return free

    def place(self, free: CpuSet, need: int, outer: int = 0) -> CpuSet:
        """Pick `need` CPUs near each other. `free` lies in one part of each of the first `outer` levels."""
        for depth in range(len(self._levels), outer, -1):
            fitting = [part for part in self._split(free, depth) if self._holds(part, free, need)]
            if fitting:
                best = min(fitting, key=lambda part: self._waste(part, free, need, depth))
                return self.place(best, need, depth)
        if outer == len(self._levels):
            return self._take(free, need)
        return self._spread(free, need, outer)

    def _spread(self, free: CpuSet, need: int, outer: int) -> CpuSet:
        """No part of the next level has enough: take the whole cores of the part with the most, then use others."""
        parts = self._split(free, outer + 1)
        richest = max(parts, key=lambda part: (len(self._take_whole(part, need)), len(part), -min(part)))
        taken = self._take_whole(richest, need) or richest
        if len(taken) >= need or self.loose(free - taken, need - len(taken)) > self.loose(free, need):
            # Cores differ in size, or a core lies in two parts: to begin with this part would split more cores.
            return self._take(free, need)
        return taken | self.place(free - taken, need - len(taken), outer)

    def _holds(self, part: CpuSet, free: CpuSet, need: int) -> bool:
        return len(part) >= need and self.loose(part, need) <= self.loose(free, need)

    def _waste(self, part: CpuSet, free: CpuSet, need: int, depth: int) -> tuple[int, ...]:
        """What to minimize: a split core, then the free CPUs of the socket, node and cache, then the lowest number."""
        single = len(part) - sum(map(len, self.whole_cores(part)))
        split = int(self.loose(part, need) > single)
        around = (next(p for p in self._split(free, level) if part <= p) for level in range(1, depth + 1))
        return (split, *(len(p) for p in around), min(part))

    def _split(self, free: CpuSet, depth: int) -> list[CpuSet]:
        """Divide `free` by the first `depth` levels together: a cache that spans two nodes counts as two."""
        parts: dict[tuple[int | None, ...], set[int]] = {}
        for cpu in free:
            key = tuple(level(self.topology.by_id[cpu]) for level in self._levels[:depth])
            parts.setdefault(key, set()).add(cpu)
        return [frozenset(part) for part in parts.values()]

    def whole_cores(self, free: CpuSet) -> list[CpuSet]:
        """The cores whose online threads are all free, the largest first, then by number."""
        cores = {self.topology.siblings(cpu) for cpu in free}
        return sorted((core for core in cores if core <= free), key=lambda core: (-len(core), min(core)))

    def loose(self, free: CpuSet, need: int) -> int:
        """How many of `need` CPUs must be single threads."""
        return need - len(self._take_whole(free, need))

    def _take_whole(self, free: CpuSet, need: int) -> CpuSet:
        taken: CpuSet = frozenset()
        for core in self.whole_cores(free):
            if len(core) <= need - len(taken):
                taken |= core
        return taken

    def _take(self, free: CpuSet, need: int) -> CpuSet:
        """Take whole cores, then threads of the cores with the fewest free threads."""
        taken = self._take_whole(free, need)
        rest = free - taken
        siblings_left = {cpu: len(self.topology.siblings(cpu) & rest) for cpu in rest}
        core = {cpu: self.topology.by_id[cpu].core for cpu in rest}
        singles = sorted(rest, key=lambda cpu: (siblings_left[cpu], core[cpu], cpu))
        return taken.union(islice(singles, need - len(taken)))
