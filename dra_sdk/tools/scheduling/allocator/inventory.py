"""All slices of a cluster, indexed so that a node's pools are found without reading the slices of other nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.devices import ContentCache, PoolId, PoolSlice
from dra_sdk.tools.scheduling.allocator.features import SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.node_selection import matches_node_selector, node_labels, node_name
from dra_sdk.tools.scheduling.allocator.pools import Candidate, Pool, gather_pools, is_ignored_slice
from dra_sdk.tools.scheduling.device_taints import apply_taint_rules

_DEFAULTS: Final = SchedulerFeatures()


@dataclass(frozen=True, slots=True)
class PoolProblem:
    """Why devices of a pool cannot be allocated on any node.

    driver: the driver of the pool.
    pool: the name of the pool.
    kind: what the problem is; obsolete stands for a slice of an old generation.
    reason: the explanation, without the name of the pool.
    """

    driver: str
    pool: str
    kind: Literal["incomplete", "invalid", "obsolete"]
    reason: str


@dataclass(frozen=True, eq=False)
class NodeInventory:
    """The pools and devices that a node can use.

    Pools with binding conditions come last; otherwise pools are sorted by driver and name.

    pools: the pools, in the order in which they are tried.
    candidates: the devices of all pools, in that order.
    invalid: why pools are invalid, by `driver/pool`.
    """

    pools: Sequence[Pool]
    candidates: Sequence[Candidate]
    invalid: Mapping[str, str]

    @classmethod
    def of(cls, pools: Iterable[Pool]) -> NodeInventory:
        """Sort these pools and collect their devices."""
        ordered = sorted(pools, key=lambda pool: (pool.has_binding_conditions, pool.id))
        candidates = [candidate for pool in ordered for candidate in pool.candidates]
        return cls(ordered, candidates, {pool.name: pool.invalid for pool in ordered if pool.invalid})

    @cached_property
    def all_scalar(self) -> bool:
        """Whether all attributes of all devices are single values."""
        return all(candidate.content.all_scalar for candidate in self.candidates)


class Inventory:
    """The devices of a cluster: slices with the taints of DeviceTaintRules applied.

    `slices` and `rules` are objects of the API that must not change afterwards; make another inventory for other
    slices. Invalid quantities and node selectors are found when a node first needs the slice, and raise
    AllocationError.
    """

    def __init__(
        self, slices: Iterable[JSON], features: SchedulerFeatures = _DEFAULTS, rules: Iterable[JSON] = ()
    ) -> None:
        self.features = features
        tainted = list(slices)
        if features.taint_rules:
            tainted = apply_taint_rules(tainted, rules, require_selector=features.behaviour.rules_need_selector)
        contents = ContentCache()
        self.slices: Sequence[PoolSlice] = [PoolSlice(raw, order, contents) for order, raw in enumerate(tainted)]
        self._slices_by_pool: dict[PoolId, list[PoolSlice]] = {}
        self._index = _SliceIndex(features)
        for pool_slice in self.slices:
            self._slices_by_pool.setdefault(pool_slice.pool, []).append(pool_slice)
            self._index.add(pool_slice)
        self._known: dict[Any, NodeInventory] = {}

    def node_devices(self, node: JSON) -> NodeInventory:
        """Return the pools and devices of a node; AllocationError if a slice that may apply to it is invalid."""
        name = node_name(node)
        key = (name, frozenset(node_labels(node).items())) if self._index.uses_labels else name
        devices = self._known.get(key)
        if devices is None:
            devices = self._known[key] = self._gather(node)
        return devices

    def _gather(self, node: JSON) -> NodeInventory:
        own_slices = self._index.slices_for(node)
        if not own_slices:
            return self._shared_devices
        touched: dict[PoolId, list[PoolSlice]] = {}
        for pool_slice in own_slices:
            touched.setdefault(pool_slice.pool, []).append(pool_slice)
        pools = [pool for pool in self._shared_devices.pools if pool.id not in touched]
        for pool_id, slices in touched.items():
            node_slices = sorted({*slices, *self._index.for_all_nodes.get(pool_id, ())}, key=self._order)
            pools += self._gather_pools(node_slices, node)
        return NodeInventory.of(pools)

    def _order(self, pool_slice: PoolSlice) -> tuple[bool, int]:
        """Sort slices of one node before shared ones, and before counter sets for every node."""
        counter_sets = pool_slice.has_counter_sets and self._index.counter_sets_everywhere
        return (not pool_slice.spec.get("nodeName") or counter_sets, pool_slice.order)

    def _gather_pools(self, node_slices: Sequence[PoolSlice], node: JSON | None) -> list[Pool]:
        all_slices = self._slices_by_pool[node_slices[0].pool]
        return gather_pools(node_slices, all_slices, node, self.features)

    @cached_property
    def _shared_devices(self) -> NodeInventory:
        """What a node sees that no slice selects in particular: pools for all nodes, and faulty counter sets.

        Up to 1.36, slices with counter sets apply to every node, even if their devices are on other nodes. They only
        matter if their pool is incomplete or invalid.
        """
        common = (sorted(slices, key=self._order) for slices in self._index.for_all_nodes.values())
        pools = (pool for slices in common for pool in self._gather_pools(slices, None))
        return NodeInventory.of(pool for pool in pools if pool.has_candidates or pool.incomplete or pool.invalid)

    @cached_property
    def problems(self) -> Sequence[PoolProblem]:
        """Pools that are incomplete or invalid, and slices of obsolete generations, by driver and pool."""
        return [problem for pool_id in sorted(self._slices_by_pool) for problem in self._pool_problems(pool_id)]

    def _pool_problems(self, pool_id: PoolId) -> Iterable[PoolProblem]:
        all_slices = self._slices_by_pool[pool_id]
        newest = max(pool_slice.generation for pool_slice in all_slices)
        for pool_slice in all_slices:
            if pool_slice.generation < newest:
                reason = f"slice {pool_slice.name} is of generation {pool_slice.generation}, the newest is {newest}"
                yield PoolProblem(*pool_id, "obsolete", reason)
        usable = [pool_slice for pool_slice in all_slices if not is_ignored_slice(pool_slice, self.features)]
        for pool in self._gather_pools(usable, None) if usable else ():
            if pool.incomplete:
                yield PoolProblem(*pool_id, "incomplete", pool.incomplete)
            elif pool.invalid:
                yield PoolProblem(*pool_id, "invalid", pool.invalid)


class _SliceIndex:
    """Which slices apply to which nodes."""

    def __init__(self, features: SchedulerFeatures) -> None:
        self._features = features
        self.counter_sets_everywhere = features.counter_sets_everywhere
        self.for_all_nodes: dict[PoolId, list[PoolSlice]] = {}
        self._by_node: dict[str, list[PoolSlice]] = {}
        self._by_selector: dict[str, tuple[Mapping[str, Any], list[PoolSlice]]] = {}
        self._mixed: list[PoolSlice] = []

    @property
    def uses_labels(self) -> bool:
        """Whether the labels of nodes matter."""
        return bool(self._by_selector or self._mixed)

    def add(self, pool_slice: PoolSlice) -> None:
        """Add a slice; one without any node selection applies to no node."""
        features, spec = self._features, pool_slice.spec
        separate_counters = pool_slice.has_counter_sets and not features.behaviour.counters_with_devices
        if not features.partitionable_devices and (separate_counters or "perDeviceNodeSelection" in spec):
            return
        if is_ignored_slice(pool_slice, features):
            return
        if pool_slice.has_counter_sets and self.counter_sets_everywhere:
            self.for_all_nodes.setdefault(pool_slice.pool, []).append(pool_slice)
        elif spec.get("nodeName") or spec.get("allNodes") or spec.get("nodeSelector") is not None:
            self._add_scope(pool_slice, spec)
        elif pool_slice.per_device_node_selection:
            self._add_devices(pool_slice)

    def _add_devices(self, pool_slice: PoolSlice) -> None:
        devices = pool_slice.raw_devices
        if any(device.get("allNodes") for device in devices) and not all(device.get("allNodes") for device in devices):
            # Every node has some of its devices, but not every node the same ones.
            self._mixed.append(pool_slice)
            return
        for device in devices:
            self._add_scope(pool_slice, device)

    def _add_scope(self, pool_slice: PoolSlice, scope: Mapping[str, Any]) -> None:
        if name := scope.get("nodeName"):
            entry = self._by_node.setdefault(name, [])
        elif scope.get("allNodes"):
            entry = self.for_all_nodes.setdefault(pool_slice.pool, [])
        elif (selector := scope.get("nodeSelector")) is not None:
            entry = self._by_selector.setdefault(repr(selector), (selector, []))[1]
        else:
            return
        if not entry or entry[-1] is not pool_slice:
            entry.append(pool_slice)

    def slices_for(self, node: JSON) -> list[PoolSlice]:
        """Return the slices that apply to this node but not to every node."""
        usable = [*self._by_node.get(node_name(node), ()), *self._mixed]
        for selector, slices in self._by_selector.values():
            if matches_node_selector(selector, node):
                usable += slices
        return usable
