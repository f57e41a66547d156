"""What devices take of the counter sets of their pools (KEP-4815), and whether claims together take too much.

The scheduler counts as well, but only where the API server stores counters, and only with what it knows of other
claims. So the node counts once more before it prepares: the devices of a claim, and those that other claims hold.

As for the scheduler, a device counts once however many claims share it, and admin access takes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Self

from dra_sdk.errors import DeviceHeldError
from dra_sdk.model.claim import HeldDevice
from dra_sdk.model.device import Amount, Device, ResourcePool
from dra_sdk.model.quantity import Quantity
from dra_sdk.node.prepare.checkpoint import Checkpoint, consumption_of
from dra_sdk.texts import shortened

_SHOWN: Final = 3  # holders in a message
_Counter = tuple[str, str, str]  # pool, counter set, counter
Consumption = Mapping[str, Mapping[str, Quantity]]
"""Amounts by counter set and counter."""


@dataclass(frozen=True, slots=True)
class PoolCounters:
    """The counters of one discovered pool.

    sets: what each counter set has.
    devices: the devices by name.
    consumers: the names of the devices that take from a counter set, by its name.
    """

    sets: Consumption = field(default_factory=dict)
    devices: Mapping[str, Device] = field(default_factory=dict)
    consumers: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, pool: ResourcePool) -> Self:
        """Return the counters of a pool; none where values are of wrong types, for which the pool is not published."""
        devices, consumers = {device.name: device for device in pool.devices}, dict[str, list[str]]()
        try:
            for device in pool.devices:
                for consumption in device.consumes:
                    consumers.setdefault(consumption.counter_set, []).append(device.name)
            sets = {counters.name: _amounts(counters.counters) for counters in pool.counter_sets}
        except (AttributeError, TypeError, ValueError):
            return cls(devices=devices)
        return cls(sets, devices, consumers)


FindCounters = Callable[[str], PoolCounters]
"""Returns the counters of a pool by its name; empty ones for a pool that is not known."""


def no_counters(_pool: str) -> PoolCounters:
    """Return the counters of a pool that has none."""
    return PoolCounters()


def rivals(started: Checkpoint, find_counters: FindCounters) -> Iterator[tuple[str, str]]:
    """Yield pool and name of each device that now takes from a counter set of the claim.

    By them the claims of an earlier release are found, which did not record what their devices take.
    """
    for device in started.claim.devices:
        consumers = find_counters(device.pool).consumers
        yield from ((device.pool, name) for counter_set in device.consumes for name in consumers.get(counter_set, ()))


def refuse_exhausted(started: Checkpoint, holders: Iterable[Checkpoint], find_counters: FindCounters) -> None:
    """Raise DeviceHeldError if a claim's devices and those of others take more of a counter than there is.

    Others count with what their devices take now, or if these are no longer discovered, with what was recorded.
    """
    own = {
        (held.pool, held.name): _CounterUse(held, held.consumes, "the same claim")
        for held in started.claim.devices
        if not held.admin_access  # else it would stand in place of what a holder of the same device takes
    }
    uses = {**{(use.device.pool, use.device.name): use for use in _held(holders, find_counters)}, **own}
    taken: defaultdict[_Counter, Fraction] = defaultdict(Fraction)
    for use in uses.values():
        for counter, amount in use.amounts():
            taken[counter] += amount.value
    for use in own.values():
        sets = find_counters(use.device.pool).sets
        for counter, amount in use.amounts():
            _, counter_set, name = counter
            has = sets.get(counter_set, {}).get(name)
            if has is not None and taken[counter] > has.value:
                rest = Quantity.of(taken[counter] - amount.value, binary=amount.binary)
                others = [
                    str(other) for other in uses.values() if other is not use and counter in dict(other.amounts())
                ]
                by = f", and {rest} of it is taken by {shortened(others, _SHOWN)}" if others else ""
                raise DeviceHeldError(
                    f"device {use.device.pool}/{use.device.name} takes {amount} of counter {name} of counter set "
                    f"{counter_set}, which has {has}{by}"
                )


@dataclass(frozen=True, slots=True)
class _CounterUse:
    """What a device takes, and who has it."""

    device: HeldDevice
    consumption: Consumption
    holder: str

    def __str__(self) -> str:
        return f"device {self.device.pool}/{self.device.name} of {self.holder}"

    def amounts(self) -> Iterator[tuple[_Counter, Quantity]]:
        for counter_set, counters in self.consumption.items():
            for name, amount in counters.items():
                yield (self.device.pool, counter_set, name), amount


def _held(claims: Iterable[Checkpoint], find_counters: FindCounters) -> Iterator[_CounterUse]:
    """Yield the devices of other claims."""
    for claim in claims:
        for held in claim.claim.devices:
            device = find_counters(held.pool).devices.get(held.name)
            now = consumption_of(device.consumes) if device is not None and device.consumes else held.consumes
            if not held.admin_access:
                yield _CounterUse(held, now, str(claim))


def _amounts(counters: Mapping[str, Amount]) -> Mapping[str, Quantity]:
    return {name: Quantity(amount) for name, amount in counters.items()}
