"""Shared counters of pools: what allocated devices have left of them, and what this allocation takes.

Source: KEP-4815 (partitionable devices). The counters of an allocation go by `Pool.ledger`: of two drivers with a pool
of the same name, up to 1.36 the one that is asked first is the one that counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dra_sdk.tools.scheduling.allocator.allocated import Allocated
from dra_sdk.tools.scheduling.allocator.devices import CounterId, PoolDevice
from dra_sdk.tools.scheduling.allocator.pools import Pool


@dataclass(frozen=True, slots=True)
class Available:
    """What is left of the counters of a pool (billionths); `overdrawn` if any of them is below zero."""

    counters: Mapping[CounterId, int]
    overdrawn: bool


def available(pool: Pool, allocated: Allocated) -> Available:
    """What the allocated devices of a pool leave of its counters; a shared device counts once."""
    left = dict(pool.counters)
    for device in pool.consumers():
        if allocated.holds(device.id):
            for counter, value in device.counters:
                if counter in left:
                    left[counter] -= value
    return Available(left, any(value < 0 for value in left.values()))


class Counters:
    """The counters that one allocation consumes while its devices are being chosen."""

    def __init__(self, allocated: Allocated) -> None:
        self._allocated = allocated
        self._available: dict[tuple[str, ...], Available] = {}
        self._consumed: dict[tuple[str, ...], dict[CounterId, int]] = {}

    def available(self, pool: Pool) -> Available:
        """What was left of the pool's counters before this allocation."""
        found = self._available.get(pool.ledger)
        if found is None:
            found = self._available[pool.ledger] = available(pool, self._allocated)
        return found

    def consumed(self, pool: Pool) -> Mapping[CounterId, int]:
        """What this allocation has taken so far."""
        return self._consumed.get(pool.ledger, {})

    def reserve(self, pool: Pool, device: PoolDevice) -> bool:
        """Takes what a device consumes, all or nothing; False if a counter of the pool does not suffice."""
        left = self.available(pool)
        if left.overdrawn:
            return False
        consumed = self._consumed.setdefault(pool.ledger, {})
        for counter, value in device.counters:
            limit = left.counters.get(counter)
            if limit is not None and consumed.get(counter, 0) + value > limit:
                return False
        for counter, value in device.counters:
            consumed[counter] = consumed.get(counter, 0) + value
        return True

    def release(self, pool: Pool, device: PoolDevice) -> None:
        """Gives back what `reserve` took."""
        consumed = self._consumed[pool.ledger]
        for counter, value in device.counters:
            consumed[counter] -= value
