"""All slices of a cluster, indexed so that the pools of a node are found without looking at the other nodes' slices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling import tracker
from dra_sdk.tools.scheduling.allocator import nodes, pools
from dra_sdk.tools.scheduling.allocator.devices import Contents
from dra_sdk.tools.scheduling.allocator.features import Features
from dra_sdk.tools.scheduling.allocator.pools import Candidate, Pool
from dra_sdk.tools.scheduling.allocator.slices import PoolId, SliceView

_EVERYTHING: Final = Features()


@dataclass(frozen=True, slots=True)
class PoolProblem:
    """Why devices of a pool cannot be had, seen from no node in particular; `reason` is a sentence."""

    driver: str
    pool: str
    kind: Literal["incomplete", "invalid", "obsolete"]
    reason: str


@dataclass(frozen=True, eq=False)
class NodeView:
    """The pools a node can use, in the order in which they are tried; `candidates` are those of them all in one list.

    Pools with devices that have binding conditions come last, otherwise the order is that of driver and pool.
    """

    pools: Sequence[Pool]
    candidates: Sequence[Candidate]
    #: Why pools of it are invalid, by name.
    invalid: Mapping[str, str]

    @classmethod
    def of(cls, found: Iterable[Pool]) -> NodeView:
        """The view of these pools."""
        ordered = sorted(found, key=lambda pool: (pool.binds, pool.id))
        candidates = [each for pool in ordered for each in pool.candidates]
        return cls(ordered, candidates, {pool.name: pool.invalid for pool in ordered if pool.invalid})

    @cached_property
    def plain(self) -> bool:
        """Whether all attributes of all devices are single values."""
        return all(each.content.plain for each in self.candidates)


class Inventory:
    """The devices of a cluster: slices with the taints of DeviceTaintRules applied.

    `slices` and `rules` are objects of the API, which must not change afterwards; other slices make another inventory.
    What is wrong with a slice is found when a node first needs it: AllocationError for quantities and node selectors
    that make no sense.
    """

    def __init__(self, slices: Iterable[JSON], features: Features = _EVERYTHING, rules: Iterable[JSON] = ()) -> None:
        self.features = features
        need_selector = features.behaviour.rules_need_selector
        with_taints = list(slices)
        if features.taint_rules:
            with_taints = tracker.apply_rules(with_taints, rules, need_selector=need_selector)
        contents = Contents()
        self.slices: Sequence[SliceView] = [SliceView(raw, order, contents) for order, raw in enumerate(with_taints)]
        self._everything: dict[PoolId, list[SliceView]] = {}
        self._index = _Index(features)
        self._order = _counters_are_shared if features.counter_sets_everywhere else _is_shared
        for each in self.slices:
            self._everything.setdefault(each.pool, []).append(each)
            self._index.add(each)
        self._views: dict[Any, NodeView] = {}

    def view(self, node: JSON) -> NodeView:
        """The pools of a node; AllocationError if a slice that might be for it cannot be understood."""
        name = nodes.name_of(node)
        key = (name, frozenset(nodes.labels_of(node).items())) if self._index.selective else name
        found = self._views.get(key)
        if found is None:
            found = self._views[key] = self._gathered(node)
        return found

    def _gathered(self, node: JSON) -> NodeView:
        own = self._index.own(node)
        if not own:
            return self._common_view
        touched: dict[PoolId, list[SliceView]] = {}
        for each in own:
            touched.setdefault(each.pool, []).append(each)
        found = [pool for pool in self._common_view.pools if pool.id not in touched]
        for identity, slices in touched.items():
            relevant = sorted({*slices, *self._index.common.get(identity, ())}, key=self._order)
            found += self._pools(relevant, node)
        return NodeView.of(found)

    def _pools(self, relevant: Sequence[SliceView], node: JSON | None) -> list[Pool]:
        everything = self._everything[relevant[0].pool]
        return pools.view(relevant, everything, node, self.features)

    @cached_property
    def _common_view(self) -> NodeView:
        """What a node sees that no slice is especially for: pools of all nodes, and what is wrong with counter sets.

        Up to 1.36, these concern every node, wherever their devices are; sound pools without devices change nothing.
        """
        common = (sorted(slices, key=self._order) for slices in self._index.common.values())
        found = (pool for slices in common for pool in self._pools(slices, None))
        return NodeView.of(pool for pool in found if pool.candidates or pool.incomplete or pool.invalid)

    @cached_property
    def problems(self) -> Sequence[PoolProblem]:
        """Pools that are incomplete or invalid, and slices of generations that are obsolete; by driver and pool."""
        return [problem for identity in sorted(self._everything) for problem in self._problems(identity)]

    def _problems(self, identity: PoolId) -> Iterable[PoolProblem]:
        everything = self._everything[identity]
        newest = max(each.generation for each in everything)
        for each in everything:
            if each.generation < newest:
                reason = f"slice {each.name} is of generation {each.generation}, the newest is {newest}"
                yield PoolProblem(*identity, "obsolete", reason)
        usable = [each for each in everything if not pools.is_ignored(each, self.features)]
        for pool in self._pools(usable, None) if usable else ():
            if pool.incomplete:
                yield PoolProblem(*identity, "incomplete", pool.incomplete)
            elif pool.invalid:
                yield PoolProblem(*identity, "invalid", pool.invalid)


def _is_shared(each: SliceView) -> tuple[bool, int]:
    """Slices of one node come before shared ones."""
    return (not each.spec.get("nodeName"), each.order)


def _counters_are_shared(each: SliceView) -> tuple[bool, int]:
    """The same where counter sets count as shared."""
    return (not each.spec.get("nodeName") or each.has_counter_sets, each.order)


class _Index:
    """Which slices concern which nodes."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._counter_sets_everywhere = features.counter_sets_everywhere
        self.common: dict[PoolId, list[SliceView]] = {}
        self._by_node: dict[str, list[SliceView]] = {}
        self._by_selector: dict[str, tuple[Mapping[str, Any], list[SliceView]]] = {}
        self._always: list[SliceView] = []

    @property
    def selective(self) -> bool:
        """Whether labels of nodes matter."""
        return bool(self._by_selector or self._always)

    def add(self, each: SliceView) -> None:
        """Files a slice; one without any node selection concerns no node."""
        features = self._features
        apart = each.has_counter_sets and not features.behaviour.counters_with_devices
        if not features.partitionable_devices and (apart or "perDeviceNodeSelection" in each.spec):
            return
        if pools.is_ignored(each, features):
            return
        if each.has_counter_sets and self._counter_sets_everywhere:
            self.common.setdefault(each.pool, []).append(each)
        elif each.spec.get("nodeName") or each.spec.get("allNodes") or each.spec.get("nodeSelector") is not None:
            self._file(each, each.spec)
        elif each.per_device:
            self._file_devices(each)

    def _file_devices(self, each: SliceView) -> None:
        devices = each.raw_devices
        if any(device.get("allNodes") for device in devices) and not all(device.get("allNodes") for device in devices):
            # Every node has some of it, but not every node the same.
            self._always.append(each)
            return
        for device in devices:
            self._file(each, device)

    def _file(self, each: SliceView, place: Mapping[str, Any]) -> None:
        if name := place.get("nodeName"):
            filed = self._by_node.setdefault(name, [])
        elif place.get("allNodes"):
            filed = self.common.setdefault(each.pool, [])
        elif (selector := place.get("nodeSelector")) is not None:
            filed = self._by_selector.setdefault(repr(selector), (selector, []))[1]
        else:
            return
        if not filed or filed[-1] is not each:
            filed.append(each)

    def own(self, node: JSON) -> list[SliceView]:
        """The slices that concern this node, but not every node."""
        found = [*self._by_node.get(nodes.name_of(node), ()), *self._always]
        for selector, slices in self._by_selector.values():
            if nodes.matches(selector, node):
                found += slices
        return found
