"""CPUs near each other: the steps by which `pick` finds some of the free CPUs of a machine.

`Packing` knows the topology and nothing of the rules of a claim. It divides free CPUs into the parts of the machine,
sockets, NUMA nodes and L3 caches, and takes cores and threads from a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from dra_sdk.hardware import Cpu, CpuSet, CpuTopology

_Level = Callable[[Cpu], int | None]


class Packing:
    """Takes CPUs near each other from the free ones of one topology. In every step `free` has at least `need` CPUs.

    It is made for one pick, and remembers how sets of CPUs were divided: each step asks for many of them again.
    """

    def __init__(self, topology: CpuTopology) -> None:
        self.topology = topology
        socket, node = (lambda cpu: cpu.socket), (lambda cpu: cpu.numa_node)
        nested = len(topology.numa_nodes) >= len(topology.sockets)
        self._levels: tuple[_Level, ...] = (*((socket, node) if nested else (node, socket)), lambda cpu: cpu.l3)

        self._whole: dict[CpuSet, list[CpuSet]] = {}
        self._parts: dict[tuple[CpuSet, int], list[CpuSet]] = {}

    # -- cores

    def whole_cores(self, free: CpuSet) -> list[CpuSet]:
        """The cores whose online threads are all free, the largest first, then by number."""
        if free not in self._whole:
            cores = {self.topology.siblings(cpu) for cpu in free}
            found = sorted((core for core in cores if core <= free), key=lambda core: (-len(core), min(core)))
            self._whole[free] = found
        return self._whole[free]

    def loose(self, free: CpuSet, need: int) -> int:
        """How many of `need` CPUs must be single threads."""
        return need - len(self._take_whole(free, need))

    def one_kind(self, free: CpuSet, need: int, loose: int) -> CpuSet:
        """The CPUs of the fastest kind of core that has `need`, at most `loose` of them single threads; else `free`."""
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
        if (free, depth) not in self._parts:
            parts: dict[tuple[int | None, ...], set[int]] = {}
            for cpu in free:
                key = tuple(level(self.topology.by_id[cpu]) for level in self._levels[:depth])
                parts.setdefault(key, set()).add(cpu)
            self._parts[free, depth] = [frozenset(part) for part in parts.values()]
        return self._parts[free, depth]

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

    # -- spread

    def spread(self, free: CpuSet, need: int) -> CpuSet:
        """Take one thread of each of `need` cores near each other; if there are fewer cores, more threads of each.

        Cores that nobody uses come first, then the lowest number.
        """
        for depth in range(len(self._levels), 0, -1):
            parts = [part for part in self._split(free, depth) if len(part) >= need]
            if fitting := [part for part in parts if self._cores(part, need) == self._cores(free, need)]:
                free = min(fitting, key=lambda part: (len(part), min(part)))
                break
        return frozenset(islice(self._one_of_each_core(free), need))

    def _cores(self, free: CpuSet, need: int) -> tuple[int, int]:
        """How many cores that nobody uses `need` threads can have, and how many cores at all."""
        cores = {self.topology.by_id[cpu].core for cpu in free}
        return min(need, len(self.whole_cores(free))), min(need, len(cores))

    def _one_of_each_core(self, free: CpuSet) -> Iterator[int]:
        """The free CPUs in rounds, each with one thread of every core that still has one."""
        cores = {self.topology.siblings(cpu) for cpu in free}
        left = [sorted(core & free) for core in sorted(cores, key=lambda core: (len(core - free), min(core)))]
        for turn in range(max(map(len, left))):
            yield from (threads[turn] for threads in left if turn < len(threads))
