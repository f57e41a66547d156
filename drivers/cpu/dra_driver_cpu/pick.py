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

`PickPolicy` changes these rules for one request.

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from dra_driver_cpu.packing import Packing
from dra_sdk import PermanentError, RetriableError
from dra_sdk.hardware import CoreType, CpuSet, CpuTopology, format_cpuset


class NotEnoughCpusError(RetriableError):
    """Fewer CPUs are free than the claim needs; a later attempt succeeds if another claim has returned some."""


class CoreAlignmentError(PermanentError):
    """Only whole cores are allowed, and no set of whole cores has the number of CPUs that the claim needs."""


class NoSuchCpusError(PermanentError):
    """The machine has no L3 cache that is large enough, or no core of the type that the claim needs."""


@dataclass(frozen=True, slots=True)
class PickPolicy:
    """How to pick CPUs.

    full_cores: pick whole cores only, as `full-pcpus-only` of the kubelet does.
    spread: pick one thread of as many cores as possible, as `distribute-cpus-across-cores` of the kubelet does. It has
        no effect together with `full_cores`.
    one_l3: pick CPUs of one L3 cache only; without it, one cache is preferred.
    distribute: if one NUMA node has too few CPUs, pick as many of each of the nodes that are needed, as
        `distribute-cpus-across-numa` of the kubelet does (KEP-2902).
    core_type: pick cores of this type only. None: prefer the fastest type that has enough.
    """

    full_cores: bool = False
    spread: bool = False
    one_l3: bool = False
    distribute: bool = False
    core_type: CoreType | None = None


PACKED = PickPolicy()
"""The default: whole cores first, then single threads."""


def pick(topology: CpuTopology, available: CpuSet, need: int, policy: PickPolicy = PACKED) -> CpuSet:
    """Pick `need` of the `available` CPUs.

    Raises NotEnoughCpusError if too few are available, CoreAlignmentError if `policy` asks for whole cores and no set
    of them has `need` CPUs, NoSuchCpusError if the machine never has what `policy` asks for, ValueError if `need` is
    below 1 or a CPU in `available` is not online.
    """
    if need < 1:
        raise ValueError(f"need {need} CPUs: must be 1 or more")
    offline = available - topology.online
    if offline:
        raise ValueError(f"CPUs {format_cpuset(offline)} are not online, so they are not available")
    return _Pick(topology, need, policy).of(available)


class _Pick:
    """One call of `pick`."""

    def __init__(self, topology: CpuTopology, need: int, policy: PickPolicy) -> None:
        self._topology, self._need, self._policy = topology, need, policy
        self._packing = Packing(topology)

    def of(self, available: CpuSet) -> CpuSet:
        """Return the CPUs."""
        free = self._of_type(available)
        if self._policy.full_cores:
            free = self._in_whole_cores(free)
        elif self._need > len(free):
            raise NotEnoughCpusError(f"need {self._need} CPUs, have {len(free)}: {format_cpuset(free) or 'none'}")
        if self._policy.one_l3:
            return self._in_one_l3(free)
        if self._policy.distribute:
            return self._distribute(free)
        return self._near(free, self._need)

    def _near(self, free: CpuSet, need: int) -> CpuSet:
        kind = self._packing.one_kind(free, need, loose=0 if self._policy.full_cores else need)
        spread = self._policy.spread and not self._policy.full_cores
        return self._packing.spread(kind, need) if spread else self._packing.place(kind, need)

    # -- what may be picked

    def _of_type(self, available: CpuSet) -> CpuSet:
        wanted = self._policy.core_type
        if wanted is None:
            return available
        cpus_of_type = frozenset(cpu.id for cpu in self._topology.cpus if cpu.core_type == wanted)
        if not cpus_of_type:
            types = " and ".join(sorted({cpu.core_type for cpu in self._topology.cpus}))
            raise NoSuchCpusError(f"need {self._need} CPUs of type {wanted}, and all cores here have type {types}")
        return available & cpus_of_type

    def _in_whole_cores(self, available: CpuSet) -> CpuSet:
        """Return the `available` CPUs that form whole cores, if `need` can come from them."""
        packing, need = self._packing, self._need
        whole: CpuSet = frozenset().union(*packing.whole_cores(available))
        if need <= len(whole) and not packing.loose(whole, need):
            return whole
        online = self._of_type(self._topology.online)
        if need <= len(online) and packing.loose(online, need):
            threads = max(len(self._topology.siblings(cpu)) for cpu in online)
            raise CoreAlignmentError(
                f"need {need} CPUs in whole cores, which have {threads} threads: ask for a multiple"
            )
        raise NotEnoughCpusError(
            f"need {need} CPUs in whole cores, the free whole cores have {len(whole)}: {format_cpuset(whole) or 'none'}"
        )

    # -- one cache

    def _in_one_l3(self, free: CpuSet) -> CpuSet:
        need, caches = self._need, self._topology.l3_caches.values()
        largest = max(map(len, caches), default=0)
        if need > largest:
            why = f"the largest here has {largest}" if largest else "this machine has none"
            raise NoSuchCpusError(f"need {need} CPUs of one L3 cache, {why}")
        parts = [cache & free for cache in caches]
        allowed = 0 if self._policy.full_cores else need
        fitting = [part for part in parts if len(part) >= need and self._packing.loose(part, need) <= allowed]
        if not fitting:
            most = max(map(len, parts))
            raise NotEnoughCpusError(f"need {need} CPUs of one L3 cache, at most {most} are free in one")
        return self._near(min(fitting, key=self._cost), need)

    def _cost(self, part: CpuSet) -> tuple[int, ...]:
        """Return what to minimize: single threads, cores that are split for them, free CPUs, the lowest number."""
        loose = self._packing.loose(part, self._need)
        single = len(part) - sum(map(len, self._packing.whole_cores(part)))
        return (loose, int(loose > single), len(part), min(part))

    # -- several NUMA nodes

    def _distribute(self, free: CpuSet) -> CpuSet:
        """Take as many CPUs of each of the fewest nodes that have enough, and of these what leaves all most even."""
        nodes = {node: cpus & free for node, cpus in self._topology.numa_nodes.items() if cpus & free}
        for count in range(1, len(nodes) + 1):
            candidates = [shares for chosen in combinations(nodes, count) if (shares := self._shares(nodes, chosen))]
            if candidates:
                best = min(candidates, key=lambda shares: _unevenness(nodes, shares))
                return frozenset().union(*(self._near(nodes[node], share) for node, share in best.items()))
        return self._near(free, self._need)

    def _shares(self, nodes: Mapping[int, CpuSet], chosen: Sequence[int]) -> dict[int, int] | None:
        """Return how many CPUs each chosen node gives; None if they cannot give the same number, one core aside."""
        size = max(map(len, self._topology.cores.values())) if self._policy.full_cores else 1
        units, rest = divmod(self._need, size)
        per_node, over = divmod(units, len(chosen))
        if rest or not per_node:
            return None
        shares = dict.fromkeys(chosen, per_node * size)
        for node in sorted(chosen, key=lambda node: (shares[node] - len(nodes[node]), node))[:over]:
            shares[node] += size
        return shares if all(self._gives(nodes[node], share) for node, share in shares.items()) else None

    def _gives(self, free: CpuSet, share: int) -> bool:
        return share <= len(free) and not (self._policy.full_cores and self._packing.loose(free, share))


def _unevenness(nodes: Mapping[int, CpuSet], shares: Mapping[int, int]) -> int:
    """Return the sum of squares of what is left free: of equal sums of free CPUs, the least is the most even."""

    def left() -> Iterator[int]:
        yield from (len(cpus) - shares.get(node, 0) for node, cpus in nodes.items())

    return sum(number * number for number in left())
