"""CPUs near each other: the steps by which `pick` finds some of the free CPUs of a machine.

`Packing` knows the topology and nothing of the rules of a claim. It divides free CPUs into the parts of the machine,
sockets, NUMA nodes and L3 caches, and takes cores and threads from a part.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from dra_sdk.hardware import CpuSet, CpuTopology


class Packing:
    """Takes CPUs near each other from the free ones of one topology. In every step `free` has at least `need` CPUs.

    It is made for one pick, and remembers how sets of CPUs were divided: each step asks for many of them again.
    """

    def __init__(self, topology: CpuTopology) -> None:
        self.topology = topology
        sockets, nodes, caches = (
            [*parts.values()] for parts in (topology.sockets, topology.numa_nodes, topology.l3_caches)
        )
        outer, inner = (sockets, nodes) if len(nodes) >= len(sockets) else (nodes, sockets)
        without_cache = topology.online.difference(*caches)
        self._levels = [outer]
        for level in (inner, [*caches, without_cache]):
            self._levels.append([part & place for part in self._levels[-1] for place in level if part & place])
        self._cores = sorted(topology.cores.values(), key=len, reverse=True)  # then by number, as they were before

        self._whole: dict[CpuSet, list[CpuSet]] = {}
        self._parts: dict[tuple[CpuSet, int], list[CpuSet]] = {}

    # -- cores

    def whole_cores(self, free: CpuSet) -> list[CpuSet]:
        """Return the cores whose online threads are all free, the largest first, then by number."""
        if free not in self._whole:
            self._whole[free] = [core for core in self._cores if core <= free]
        return self._whole[free]

    def loose(self, free: CpuSet, need: int) -> int:
        """Return how many of `need` CPUs must be single threads."""
        return need - len(self._take_whole(free, need))

    def one_kind(self, free: CpuSet, need: int, loose: int) -> CpuSet:
        """Return the CPUs of the fastest kind of core with `need`, at most `loose` as single threads; else `free`."""
        slow = frozenset(cpu for cpu in free if self.topology.by_id[cpu].core_type == "e-core")
        for kind in (free - slow, slow):
            if len(kind) >= need and self.loose(kind, need) <= loose:
                return kind
        return free

    # -- packed

    def place(self, free: CpuSet, need: int, outer: int = 0) -> CpuSet:
        """Take `need` CPUs near each other. `free` lies in one part of each of the first `outer` levels."""
        for depth in range(len(self._levels), outer, -1):
            fitting = [part for part in self._split(free, depth) if self._holds(part, free, need)]
            if fitting:
                best = min(fitting, key=lambda part: self._waste(part, free, need, depth))
                return self.place(best, need, depth)
        if outer == len(self._levels):
            return self._take(free, need)
        return self._use_several(free, need, outer)

    def _use_several(self, free: CpuSet, need: int, outer: int) -> CpuSet:
        """Take the whole cores of the part with the most, then use others: no part of the next level has enough."""
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
        """Return what to minimize: a split core, then the free CPUs of socket, node, cache, then the lowest number."""
        single = len(part) - sum(map(len, self.whole_cores(part)))
        split = int(self.loose(part, need) > single)
        around = (next(p for p in self._split(free, level) if part <= p) for level in range(1, depth + 1))
        return (split, *(len(p) for p in around), min(part))

    def _split(self, free: CpuSet, depth: int) -> list[CpuSet]:
        """Divide `free` by the first `depth` levels together: a cache that spans two nodes counts as two."""
        if (free, depth) not in self._parts:
            self._parts[free, depth] = [part & free for part in self._levels[depth - 1] if part & free]
        return self._parts[free, depth]

    def _take_whole(self, free: CpuSet, need: int) -> CpuSet:
        taken, left = list[CpuSet](), need
        for core in self.whole_cores(free):
            if len(core) <= left:
                taken.append(core)
                left -= len(core)
            if not left:
                break
        return frozenset().union(*taken)

    def _take(self, free: CpuSet, need: int) -> CpuSet:
        """Take whole cores, then threads of the cores with the fewest free threads."""
        taken = self._take_whole(free, need)
        if len(taken) == need:
            return taken
        rest = free - taken
        siblings_left = {cpu: len(self.topology.siblings(cpu) & rest) for cpu in rest}
        core = {cpu: self.topology.by_id[cpu].core for cpu in rest}
        singles = sorted(rest, key=lambda cpu: (siblings_left[cpu], core[cpu], cpu))
        return taken.union(islice(singles, need - len(taken)))

    # -- spread

    def spread(self, free: CpuSet, need: int) -> CpuSet:
        """Take one thread of each of `need` cores near each other; if there are fewer cores, more threads of each.

        Cores that are free come first, then the lowest number.
        """
        for depth in range(len(self._levels), 0, -1):
            parts = [part for part in self._split(free, depth) if len(part) >= need]
            if fitting := [part for part in parts if self._reached(part, need) == self._reached(free, need)]:
                free = min(fitting, key=lambda part: (len(part), min(part)))
                break
        return frozenset(islice(self._one_of_each_core(free), need))

    def _reached(self, free: CpuSet, need: int) -> tuple[int, int]:
        """Return how many cores that are free `need` threads can have, and how many cores at all."""
        cores = {self.topology.by_id[cpu].core for cpu in free}
        return min(need, len(self.whole_cores(free))), min(need, len(cores))

    def _one_of_each_core(self, free: CpuSet) -> Iterator[int]:
        """Yield the free CPUs in rounds, each with one thread of every core that still has one."""
        cores = {self.topology.siblings(cpu) for cpu in free}
        left = [sorted(core & free) for core in sorted(cores, key=lambda core: (len(core - free), min(core)))]
        for turn in range(max(map(len, left))):
            yield from (threads[turn] for threads in left if turn < len(threads))
