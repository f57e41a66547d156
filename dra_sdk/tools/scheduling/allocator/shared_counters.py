"""Shared counters of pools, and which devices may use one counter set together.

Source: KEP-4815 (partitionable devices); resource.k8s.io/v1 CounterSet, DeviceCounterConsumption.compatibilityGroups;
k8s.io/dynamic-resource-allocation, structured (1.36, 1.37).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dra_sdk.tools.scheduling.allocator.allocated_state import AllocatedState
from dra_sdk.tools.scheduling.allocator.devices import CounterId, PoolDevice, PoolId
from dra_sdk.tools.scheduling.allocator.pools import Pool


@dataclass(frozen=True, slots=True)
class AvailableCounters:
    """What is left of the counters of a pool.

    counters: what is left of each counter, in billionths.
    overdrawn: whether any of them is negative.
    """

    counters: Mapping[CounterId, int]
    overdrawn: bool


def available_counters(pool: Pool, allocated: AllocatedState) -> AvailableCounters:
    """Return what allocated devices leave of the counters of a pool; a shared device counts once."""
    left = dict(pool.counters)
    for device in pool.counter_consumers:
        if allocated.is_in_use(device.id):
            for counter, value in device.counters:
                if counter in left:
                    left[counter] -= value
    return AvailableCounters(left, any(value < 0 for value in left.values()))


class SharedCounters:
    """The counters that one allocation consumes while its devices are chosen.

    They are recorded under `Pool.counters_key`. Up to 1.36 that is the name of the pool alone, so that if two drivers
    have a pool of the same name, the counters of the pool that is used first apply to both.
    """

    def __init__(self, allocated: AllocatedState) -> None:
        self._allocated = allocated
        self._available: dict[tuple[str, ...], AvailableCounters] = {}
        self._consumed: dict[tuple[str, ...], dict[CounterId, int]] = {}

    def available(self, pool: Pool) -> AvailableCounters:
        """Return what was left of the pool's counters before this allocation."""
        counters = self._available.get(pool.counters_key)
        if counters is None:
            counters = self._available[pool.counters_key] = available_counters(pool, self._allocated)
        return counters

    def consumed(self, pool: Pool) -> Mapping[CounterId, int]:
        """Return what this allocation has consumed so far."""
        return self._consumed.get(pool.counters_key, {})

    def reserve(self, pool: Pool, device: PoolDevice) -> bool:
        """Consume the counters of a device, all or nothing; False if the pool does not have enough."""
        left = self.available(pool)
        if left.overdrawn:
            return False
        consumed = self._consumed.setdefault(pool.counters_key, {})
        for counter, value in device.counters:
            limit = left.counters.get(counter)
            if limit is not None and consumed.get(counter, 0) + value > limit:
                return False
        for counter, value in device.counters:
            consumed[counter] = consumed.get(counter, 0) + value
        return True

    def release(self, pool: Pool, device: PoolDevice) -> None:
        """Give back what `reserve` consumed."""
        consumed = self._consumed[pool.counters_key]
        for counter, value in device.counters:
            consumed[counter] -= value


CommonGroups = frozenset[str] | None
"""The groups that all devices on a counter set have in common; None if they declare none."""
GroupsByCounterSet = Mapping[str, CommonGroups]
"""The common groups by counter set; one without devices is missing."""


class CompatibilityGroups:
    """The compatibility groups of the devices on each counter set, while an allocation chooses devices.

    Devices that declare groups for a counter set are compatible if all of them have a group in common; devices that
    declare none are compatible with devices that declare none.
    """

    def __init__(self, allocated: AllocatedState) -> None:
        self._allocated = allocated
        self._placed: dict[PoolId, GroupsByCounterSet] = {}

    def admits(self, pool: Pool, device: PoolDevice) -> bool:
        """Return whether a device is compatible with the allocated and chosen devices on its counter sets."""
        placed = self._groups_of(pool)
        return all(
            name not in placed or is_compatible(groups, placed[name]) for name, groups in declared_groups(device)
        )

    def place(self, pool: Pool, device: PoolDevice) -> GroupsByCounterSet:
        """Add a device to its counter sets; return what `restore` needs to remove it."""
        before = self._groups_of(pool)
        self._placed[pool.id] = _with_device(before, device)
        return before

    def restore(self, pool: Pool, before: GroupsByCounterSet) -> None:
        """Remove the latest device."""
        self._placed[pool.id] = before

    def _groups_of(self, pool: Pool) -> GroupsByCounterSet:
        groups = self._placed.get(pool.id)
        if groups is None:
            groups = {}
            for device in pool.counter_consumers:
                groups = _with_device(groups, device) if self._allocated.is_in_use(device.id) else groups
            self._placed[pool.id] = groups
        return groups


def _with_device(placed: GroupsByCounterSet, device: PoolDevice) -> GroupsByCounterSet:
    after = dict(placed)
    for name, groups in declared_groups(device):
        after[name] = common_groups(groups, after[name]) if name in after else (groups or None)
    return after


def declared_groups(device: PoolDevice) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the counter sets of a device, each with the groups that it declares for it."""
    for consumption in device.json.get("consumesCounters") or ():
        yield consumption["counterSet"], frozenset(consumption.get("compatibilityGroups") or ())


def is_compatible(groups: frozenset[str], common: CommonGroups) -> bool:
    """Return whether a device with these groups may join devices with these common groups."""
    return not groups if common is None else bool(groups & common)


def common_groups(groups: frozenset[str], common: CommonGroups) -> CommonGroups:
    """Return the common groups after one more device; a device without groups changes nothing."""
    return common & groups if common is not None and groups else common
