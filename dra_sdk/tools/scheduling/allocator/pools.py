"""Pools as one node sees them: which slices count, and whether devices can be allocated from them.

Only the newest generation of a pool counts. A pool is incomplete while slices of it are missing, and invalid if two
devices have the same name or if counters are not defined. Nothing is allocated from either. A pool is obsolete, and
ignored, if a newer generation exists that is not for this node.
Source: k8s.io/dynamic-resource-allocation, structured (1.36, 1.37), GatherPools; resource.k8s.io/v1 ResourcePool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.devices import (
    CounterId,
    DeviceContent,
    DeviceId,
    PoolDevice,
    PoolId,
    PoolSlice,
    counters_of,
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


@dataclass(eq=False)
class Pool:
    """A pool as a node sees it. In 1.34, each slice of a pool with counters is one of these.

    id: driver and name of the pool.
    slices: the slices with the devices to choose from.
    node: the node; None: the pool as a whole, with the devices of all nodes.
    counters: the total of each counter of its counter sets, in billionths.
    slices_elsewhere: the slices that are not for this node; their devices use the same counters.
    counters_key: the key under which the consumption of its counters is recorded.
    incomplete: which slices are missing, so that nothing can be allocated from it; empty if none are missing.
    invalid: how its slices contradict each other, so that nothing can be allocated from it; empty if they do not.
    has_binding_conditions: whether any candidate has binding conditions; such pools are tried last.
    """

    id: PoolId
    slices: Sequence[PoolSlice] = ()
    node: JSON | None = None
    counters: Mapping[CounterId, int] = field(default_factory=dict)
    slices_elsewhere: Sequence[PoolSlice] = ()
    counters_key: tuple[str, ...] = ()
    incomplete: str = ""
    invalid: str = ""
    has_binding_conditions: bool = False

    @property
    def name(self) -> str:
        """`driver/pool`."""
        return "/".join(self.id)

    @property
    def has_candidates(self) -> bool:
        """Whether there is any device to choose from."""
        return any(pool_slice.raw_devices for pool_slice in self.slices)

    @cached_property
    def candidates(self) -> Sequence[Candidate]:
        """The devices to choose from, in the order in which they are tried."""
        node = self.node
        return tuple(
            Candidate(
                device,
                self,
                on_node=node is None or not pool_slice.per_device_node_selection or selects_node(device.json, node),
            )
            for pool_slice in self.slices
            for device in pool_slice.devices
        )

    @cached_property
    def counter_consumers(self) -> Sequence[PoolDevice]:
        """Every device of the pool that consumes counters, on any node."""
        elsewhere = (device for pool_slice in self.slices_elsewhere for device in pool_slice.devices)
        own = (candidate.device for candidate in self.candidates)
        return [device for device in (*own, *elsewhere) if device.counters]


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
    generation = max(pool_slice.generation for pool_slice in node_slices)
    current = [pool_slice for pool_slice in node_slices if pool_slice.generation == generation]
    pool_id, expected = current[0].pool, current[0].count
    complete: Sequence[PoolSlice] = current
    if len(current) != expected:
        if any(pool_slice.generation > generation for pool_slice in all_slices):
            return []
        present = [pool_slice for pool_slice in all_slices if pool_slice.generation == generation]
        complete = [pool_slice for pool_slice in present if not is_ignored_slice(pool_slice, features)]
        if len(complete) != expected:
            return [Pool(pool_id, incomplete=_incomplete_reason(complete, present, expected))]
    current.sort(key=lambda pool_slice: pool_slice.name)
    try:
        if not features.partitionable_devices:
            check_device_names(current)
            return [_with_slices(Pool(pool_id), current, node)]
        if features.behaviour.counters_with_devices:
            return list(_pools_per_slice(pool_id, current, node))
        counters_key = pool_id if features.behaviour.counters_per_driver else pool_id[1:]
        return [_pool_with_counters(Pool(pool_id, counters_key=counters_key), current, complete, node)]
    except PoolValidationError as problem:
        return [Pool(pool_id, invalid=str(problem))]


def _incomplete_reason(complete: Sequence[PoolSlice], present: Sequence[PoolSlice], expected: int) -> str:
    reason = f"{len(complete)} of {expected} slices of generation {present[0].generation} exist"
    if len(present) > expected:
        return f"{reason}, more than resourceSliceCount says"
    if len(complete) == len(present):
        return reason
    ignored = "those with compatibilityGroups are ignored while the feature DRADeviceCompatibilityGroups is off"
    return f"{reason}, {ignored}"


def _pools_per_slice(pool_id: PoolId, current: Sequence[PoolSlice], node: JSON | None) -> Iterator[Pool]:
    """Yield each slice as a pool with counter sets and devices of its own, as in 1.34."""
    check_device_names(current)
    has_binding_conditions = any(pool_slice.shape.has_binding_conditions for pool_slice in current)
    for pool_slice in current:
        counters = collect_counters([pool_slice])
        check_consumed_counters([pool_slice], counters)
        pool = Pool(pool_id, counters=counters, counters_key=(*pool_id, pool_slice.name))
        pool = _with_slices(pool, [pool_slice], node)
        pool.has_binding_conditions = has_binding_conditions
        yield pool


def _pool_with_counters(
    pool: Pool, current: Sequence[PoolSlice], complete: Sequence[PoolSlice], node: JSON | None
) -> Pool:
    with_devices = [pool_slice for pool_slice in current if not pool_slice.has_counter_sets]
    check_device_names(with_devices)
    pool.counters = collect_counters([pool_slice for pool_slice in complete if pool_slice.has_counter_sets])
    check_consumed_counters(with_devices, pool.counters)
    seen = {pool_slice.name for pool_slice in current}
    others = [pool_slice for pool_slice in complete if pool_slice.name not in seen and not pool_slice.has_counter_sets]
    check_consumed_counters(others, pool.counters)
    pool.slices_elsewhere = others
    _read_invalid_amounts(others)
    return _with_slices(pool, with_devices, node)


def _with_slices(pool: Pool, slices: Sequence[PoolSlice], node: JSON | None) -> Pool:
    """Set the slices with candidates. The candidates are made when they are needed, except where that is an error."""
    pool.slices, pool.node = slices, node
    pool.has_binding_conditions = any(pool_slice.shape.has_binding_conditions for pool_slice in slices)
    _read_invalid_amounts(slices)
    return pool


def _read_invalid_amounts(slices: Iterable[PoolSlice]) -> None:
    """Raise AllocationError for the first device that consumes an invalid amount of a counter."""
    for pool_slice in slices:
        if pool_slice.shape.consumed is None:
            _ = pool_slice.devices


def check_device_names(slices: Sequence[PoolSlice]) -> None:
    """Raise PoolValidationError if two devices have the same name."""
    name = _duplicate([name for pool_slice in slices for name in pool_slice.shape.names])
    if name is not None:
        raise PoolValidationError(f"duplicate device name {name}")


def _duplicate(names: Sequence[str]) -> str | None:
    """Return the first name that occurs again, None if none does."""
    if len(set(names)) == len(names):
        return None
    return next(name for index, name in enumerate(names) if name in names[:index])


def collect_counters(slices: Sequence[PoolSlice]) -> Mapping[CounterId, int]:
    """Return all counters of these slices in billionths; PoolValidationError if two sets have the same name."""
    name = _duplicate([name for pool_slice in slices for name in pool_slice.shape.counter_sets])
    if name is not None:
        raise PoolValidationError(f"duplicate counter set name {name}")
    amounts = [pool_slice.shape.counters or counters_of(pool_slice) for pool_slice in slices]
    # Pools of one shape share the counters of their only slice with them.
    return amounts[0] if len(amounts) == 1 else dict(chain.from_iterable(counters.items() for counters in amounts))


def check_consumed_counters(slices: Iterable[PoolSlice], counters: Mapping[CounterId, int]) -> None:
    """Raise PoolValidationError if a device consumes a counter that its pool does not have."""
    sets = {name for name, _ in counters}
    for pool_slice in slices:
        consumed = pool_slice.shape.consumed
        if consumed is not None and pool_slice.shape.consumed_sets <= sets and consumed <= counters.keys():
            continue
        for device in pool_slice.raw_devices:
            for consumption in device.get("consumesCounters") or []:
                name = consumption["counterSet"]
                if name not in sets:
                    raise PoolValidationError(f"device {device['name']}: counter set {name} not found")
                for counter in consumption.get("counters") or {}:
                    if (name, counter) not in counters:
                        problem = f"counter {counter} not found in counter set {name}"
                        raise PoolValidationError(f"device {device['name']}: {problem}")
