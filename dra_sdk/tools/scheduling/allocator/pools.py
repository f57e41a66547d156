"""Pools as one node sees them: which slices count, and whether devices can be allocated from them.

Only the newest generation of a pool counts. A pool is incomplete while slices of it are missing, and invalid if two
devices have the same name or if counters are not defined. Nothing is allocated from either. A pool is obsolete, and
ignored, if a newer generation exists that is not for this node.
Source: k8s.io/dynamic-resource-allocation, structured (1.36, 1.37), GatherPools; resource.k8s.io/v1 ResourcePool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.devices import (
    CounterId,
    DeviceContent,
    DeviceId,
    PoolDevice,
    PoolId,
    PoolSlice,
    parse_nanos,
)
from dra_sdk.tools.scheduling.allocator.features import SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.node_selection import selects_node


class Candidate:
    """A device of a pool as a node sees it; `on_node` is False for a device that only other nodes can use."""

    __slots__ = ("content", "device", "id", "on_node", "pool")

    def __init__(self, device: PoolDevice, pool: Pool, *, on_node: bool) -> None:
        self.device, self.pool, self.on_node = device, pool, on_node
        self.id: DeviceId = device.id
        self.content: DeviceContent = device.content

    def __repr__(self) -> str:
        return f"Candidate({self.id})"


@dataclass(slots=True, eq=False)
class Pool:
    """A pool as a node sees it. In 1.34, each slice of a pool with counters is one of these.

    id: driver and name of the pool.
    candidates: the devices to choose from, in the order in which they are tried.
    counters: the total of each counter of its counter sets, in billionths.
    devices_elsewhere: the devices of slices that are not for this node; they use the same counters.
    counters_key: the key under which the consumption of its counters is recorded.
    incomplete: which slices are missing, so that nothing can be allocated from it; empty if none are missing.
    invalid: how its slices contradict each other, so that nothing can be allocated from it; empty if they do not.
    has_binding_conditions: whether any candidate has binding conditions; such pools are tried last.
    """

    id: PoolId
    candidates: Sequence[Candidate] = ()
    counters: Mapping[CounterId, int] = field(default_factory=dict)
    devices_elsewhere: Sequence[PoolDevice] = ()
    counters_key: tuple[str, ...] = ()
    incomplete: str = ""
    invalid: str = ""
    has_binding_conditions: bool = False

    @property
    def name(self) -> str:
        """`driver/pool`."""
        return "/".join(self.id)

    def counter_consumers(self) -> Iterable[PoolDevice]:
        """Yield every device of the pool that consumes counters, on any node."""
        yield from (each.device for each in self.candidates if each.device.counters)
        yield from (each for each in self.devices_elsewhere if each.counters)


class PoolValidationError(Exception):
    """The slices of a pool contradict each other; the message says how."""


def is_ignored_slice(pool_slice: PoolSlice, features: SchedulerFeatures) -> bool:
    """Return whether a slice counts as missing because it has compatibility groups and that feature is off."""
    return (
        features.behaviour.knows_1_37_fields
        and not features.compatibility_groups
        and pool_slice.has_compatibility_groups
    )


def gather_pools(
    node_slices: Sequence[PoolSlice], all_slices: Sequence[PoolSlice], node: JSON | None, features: SchedulerFeatures
) -> list[Pool]:
    """Return a pool as a node sees it: one item, or none if the pool is obsolete for the node.

    `node_slices` are the slices of the pool that apply to the node, `all_slices` those of the whole cluster. Without a
    node, devices of all nodes are included. In 1.34 each slice of a pool with counters is returned as a pool.
    """
    generation = max(each.generation for each in node_slices)
    current = [each for each in node_slices if each.generation == generation]
    pool_id, expected = current[0].pool, current[0].count
    complete: Sequence[PoolSlice] = current
    if len(current) != expected:
        if any(each.generation > generation for each in all_slices):
            return []
        present = [each for each in all_slices if each.generation == generation]
        complete = [each for each in present if not is_ignored_slice(each, features)]
        if len(complete) != expected:
            return [Pool(pool_id, incomplete=_incomplete_reason(complete, present, expected))]
    current.sort(key=lambda each: each.name)
    try:
        if not features.partitionable_devices:
            return [_pool_without_counters(pool_id, current, node)]
        if features.behaviour.counters_with_devices:
            return list(_pools_per_slice(pool_id, current, node))
        counters_key = pool_id if features.behaviour.counters_per_driver else pool_id[1:]
        return [_pool_with_counters(Pool(pool_id, counters_key=counters_key), current, complete, node)]
    except PoolValidationError as problem:
        return [Pool(pool_id, invalid=str(problem))]


def _incomplete_reason(complete: Sequence[PoolSlice], present: Sequence[PoolSlice], expected: int) -> str:
    found = f"{len(complete)} of {expected} slices of generation {present[0].generation} exist"
    if len(complete) == len(present):
        return found
    ignored = "those with compatibilityGroups are ignored while the feature DRADeviceCompatibilityGroups is off"
    return f"{found}, {ignored}"


def _pool_without_counters(pool_id: PoolId, current: Sequence[PoolSlice], node: JSON | None) -> Pool:
    check_device_names(current)
    return _with_candidates(Pool(pool_id), current, node)


def _pools_per_slice(pool_id: PoolId, current: Sequence[PoolSlice], node: JSON | None) -> Iterator[Pool]:
    """Yield each slice as a pool with counter sets and devices of its own, as in 1.34."""
    check_device_names(current)
    has_binding_conditions = any(device.binding_conditions for each in current for device in each.devices)
    for each in current:
        counters = collect_counters([each])
        check_consumed_counters([each], counters)
        pool = _with_candidates(Pool(pool_id, counters=counters, counters_key=(*pool_id, each.name)), [each], node)
        pool.has_binding_conditions = has_binding_conditions
        yield pool


def _pool_with_counters(
    pool: Pool, current: Sequence[PoolSlice], complete: Sequence[PoolSlice], node: JSON | None
) -> Pool:
    with_devices = [each for each in current if not each.has_counter_sets]
    check_device_names(with_devices)
    pool.counters = collect_counters(each for each in complete if each.has_counter_sets)
    check_consumed_counters(with_devices, pool.counters)
    seen = {each.name for each in current}
    others = [each for each in complete if each.name not in seen and not each.has_counter_sets]
    check_consumed_counters(others, pool.counters)
    pool.devices_elsewhere = [device for each in others for device in each.devices]
    return _with_candidates(pool, with_devices, node)


def _with_candidates(pool: Pool, slices: Sequence[PoolSlice], node: JSON | None) -> Pool:
    pool.candidates = tuple(
        Candidate(
            device, pool, on_node=node is None or not each.per_device_node_selection or selects_node(device.json, node)
        )
        for each in slices
        for device in each.devices
    )
    pool.has_binding_conditions = any(each.device.binding_conditions for each in pool.candidates)
    return pool


def check_device_names(slices: Iterable[PoolSlice]) -> None:
    """Raise PoolValidationError if two devices have the same name."""
    seen: set[str] = set()
    for each in slices:
        for device in each.raw_devices:
            if device["name"] in seen:
                raise PoolValidationError(f"duplicate device name {device['name']}")
            seen.add(device["name"])


def collect_counters(slices: Iterable[PoolSlice]) -> dict[CounterId, int]:
    """Return all counters of these slices in billionths; PoolValidationError if two sets have the same name."""
    found: dict[CounterId, int] = {}
    sets: set[str] = set()
    for each in slices:
        for counter_set in each.spec.get("sharedCounters") or []:
            name = counter_set["name"]
            if name in sets:
                raise PoolValidationError(f"duplicate counter set name {name}")
            sets.add(name)
            for counter, value in (counter_set.get("counters") or {}).items():
                found[name, counter] = parse_nanos(value, f"slice {each.name}, counter set {name}, counter {counter}")
    return found


def check_consumed_counters(slices: Iterable[PoolSlice], counters: Mapping[CounterId, int]) -> None:
    """Raise PoolValidationError if a device consumes a counter that its pool does not have."""
    sets = {name for name, _ in counters}
    for each in slices:
        for device in each.raw_devices:
            for consumption in device.get("consumesCounters") or []:
                name = consumption["counterSet"]
                if name not in sets:
                    raise PoolValidationError(f"device {device['name']}: counter set {name} not found")
                for counter in consumption.get("counters") or {}:
                    if (name, counter) not in counters:
                        problem = f"counter {counter} not found in counter set {name}"
                        raise PoolValidationError(f"device {device['name']}: {problem}")
