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
from typing import TYPE_CHECKING, Any, Final, Self

from dra_sdk.errors import DeviceHeldError
from dra_sdk.model.claim import AllocatedDevice, HeldDevice
from dra_sdk.model.device import Amount, CounterConsumption, Device, ResourcePool
from dra_sdk.model.quantity import Quantity
from dra_sdk.texts import shortened

if TYPE_CHECKING:
    from dra_sdk.node.prepare.checkpoint import Checkpoint

_SHOWN: Final = 3  # holders in a message
_Key = tuple[str, str]
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


def device_lock(pool: str, name: str) -> str:
    """Return the name of a device's lock, also in the index of what claims hold."""
    return f"device/{pool}/{name}"


def counter_lock(pool: str, name: str) -> str:
    """Return the name of a counter set's lock, also in the index of what claims hold."""
    return f"counters/{pool}/{name}"


def no_counters(_pool: str) -> PoolCounters:
    """Return the counters of a pool that has none."""
    return PoolCounters()


def rival_names(started: Checkpoint, find_counters: FindCounters) -> set[str]:
    """Return the names of all that a claim may have to share: its devices, and the counter sets that these take from.

    With them come the devices that take from these counter sets now: an earlier release did not record what they take.
    """
    names = started.device_locks | started.counter_locks
    for device in started.claim.devices:
        for counter_set in device.consumes:
            consumers = find_counters(device.pool).consumers.get(counter_set, ())
            names |= {device_lock(device.pool, name) for name in consumers}
    return names


def refuse_exhausted(started: Checkpoint, others: Iterable[Checkpoint], find_counters: FindCounters) -> None:
    """Raise DeviceHeldError if a claim's devices and those of others take more of a counter than there is.

    Others count with what their devices take now, or if these are no longer discovered, with what was recorded.
    """
    own = {(device.pool, device.name): device.consumes for device in started.claim.devices if device.consumes}
    if not own:
        return
    uses = {key: (consumption, f" of {other}") for key, consumption, other in _held(others, find_counters)}
    uses |= {key: (consumption, " of the same claim") for key, consumption in own.items()}
    taken: defaultdict[tuple[str, str, str], Fraction] = defaultdict(Fraction)
    for (pool, _), (consumption, _) in uses.items():
        for counter_set, counter, amount in _flat(consumption):
            taken[pool, counter_set, counter] += amount.value
    for key, consumption in own.items():
        sets = find_counters(key[0]).sets
        for counter_set, counter, amount in _flat(consumption):
            has = sets.get(counter_set, {}).get(counter)
            if has is not None and taken[key[0], counter_set, counter] > has.value:
                left = Quantity.of(taken[key[0], counter_set, counter] - amount.value, binary=amount.binary)
                rivals = [
                    f"device {pool}/{device}{holder}"
                    for (pool, device), (rival, holder) in uses.items()
                    if pool == key[0] and (pool, device) != key and counter in rival.get(counter_set, ())
                ]
                by = f", and {left} of it is taken by {shortened(rivals, _SHOWN)}" if rivals else ""
                raise DeviceHeldError(
                    f"device {key[0]}/{key[1]} takes {amount} of counter {counter} of counter set {counter_set}, "
                    f"which has {has}{by}"
                )


def consumption_of(device: AllocatedDevice[Any]) -> Consumption:
    """Return what an allocated device takes; nothing with admin access."""
    if device.admin_access or device.device is None:
        return {}
    return _consumption(device.device.consumes)


def _held(others: Iterable[Checkpoint], find_counters: FindCounters) -> Iterator[tuple[_Key, Consumption, Checkpoint]]:
    """Yield the devices of other claims, each with what it takes and the claim."""
    for other in others:
        for held in other.claim.devices:
            if not held.admin_access and (consumption := _now(held, find_counters)):
                yield (held.pool, held.name), consumption, other


def _now(held: HeldDevice, find_counters: FindCounters) -> Consumption:
    device = find_counters(held.pool).devices.get(held.name)
    return _consumption(device.consumes) if device is not None and device.consumes else held.consumes


def _consumption(consumes: Iterable[CounterConsumption]) -> Consumption:
    return {consumption.counter_set: _amounts(consumption.counters) for consumption in consumes}


def _amounts(counters: Mapping[str, Amount]) -> Mapping[str, Quantity]:
    return {name: Quantity(amount) for name, amount in counters.items()}


def _flat(consumption: Consumption) -> Iterator[tuple[str, str, Quantity]]:
    for counter_set, counters in consumption.items():
        for counter, amount in counters.items():
            yield counter_set, counter, amount
