"""Which of a driver's devices can be allocated on one node at the same time.

This is not the scheduler's allocator (see `Claims.create_scheduled`). It lists everything that can be taken together:
no other claim has the device, no taint repels claims, and counters and capacity suffice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity

Counters = dict[tuple[str, str], Fraction]
"""What is left, by counter set and counter."""
DeviceKey = tuple[str, str]
"""Pool and device name."""
MAX_SHARES: Final = 64
"""The most shares of one device that are listed."""
_REPELLING: Final = {"NoSchedule", "NoExecute"}


@dataclass(frozen=True)
class AllocatableDevice:
    """A device that can be allocated, or one share of it.

    pool: name of its pool.
    device: its name.
    shared: whether this is a share of a device that several claims can have.
    consumed: the capacity that the share consumes, by name.
    """

    pool: str
    device: str
    shared: bool = False
    consumed: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> DeviceKey:
        """Pool and device name."""
        return self.pool, self.device


def latest_generation(slices: Iterable[JSON]) -> list[JSON]:
    """Return the slices of each pool's highest generation; the scheduler ignores older ones."""
    raw_slices = list(slices)
    pools = [raw_slice["spec"]["pool"] for raw_slice in raw_slices]
    newest: dict[str, int] = defaultdict(int)
    for pool in pools:
        newest[pool["name"]] = max(newest[pool["name"]], pool["generation"])
    pairs = zip(raw_slices, pools, strict=True)
    return [raw_slice for raw_slice, pool in pairs if pool["generation"] == newest[pool["name"]]]


def pools_complete(slices: Iterable[JSON]) -> bool:
    """Return whether there is a slice, and each pool has as many slices as it announces."""
    pools = [raw_slice["spec"]["pool"] for raw_slice in latest_generation(slices)]
    counts = Counter(pool["name"] for pool in pools)
    return bool(pools) and all(counts[pool["name"]] == pool["resourceSliceCount"] for pool in pools)


def devices_with_slices(slices: Iterable[JSON]) -> Iterator[tuple[JSON, JSON]]:
    """Yield every slice with each of its devices."""
    for raw_slice in slices:
        for device in raw_slice["spec"].get("devices") or ():
            yield raw_slice, device


def published_devices(slices: Iterable[JSON]) -> set[DeviceKey]:
    """Return all devices of the latest generation."""
    pairs = devices_with_slices(latest_generation(slices))
    return {(raw_slice["spec"]["pool"]["name"], device["name"]) for raw_slice, device in pairs}


def allocatable_devices(
    slices: Iterable[JSON],
    node_name: str,
    *,
    held: Iterable[DeviceKey] = (),
    fits: Callable[[JSON], bool] = lambda _device: True,
    capacity: Mapping[str, str] | None = None,
) -> list[AllocatableDevice]:
    """Return all that can be allocated on a node at the same time: first one of each device, then further shares.

    Devices in `held` and devices that do not fit are left out. `capacity` is what each share requests; a capacity
    without a request consumes the default of its policy.
    """
    pools = latest_generation(slices)
    counters = _shared_counters(pools)
    taken = set(held)
    devices: list[AllocatableDevice] = []
    for raw_slice, device in devices_with_slices(pools):
        pool = raw_slice["spec"]["pool"]["name"]
        free = (pool, device["name"]) not in taken and not _repels(device)
        on_node = _is_on_node(raw_slice["spec"], device, node_name)
        if free and on_node and fits(device) and _consume(counters[pool], device):
            devices += _shares(pool, device, capacity or {})
    return _different_devices_first(devices)


def _is_on_node(spec: JSON, device: JSON, node_name: str) -> bool:
    place = device if spec.get("perDeviceNodeSelection") else spec
    if place.get("nodeName"):
        return bool(place["nodeName"] == node_name)
    # Node selectors are the scheduler's task: a driver prepares what is allocated.
    return True


def _repels(device: JSON) -> bool:
    return any(taint.get("effect") in _REPELLING for taint in device.get("taints") or ())


def _shared_counters(slices: Iterable[JSON]) -> dict[str, Counters]:
    counters: dict[str, Counters] = defaultdict(dict)
    for raw_slice in slices:
        pool = raw_slice["spec"]["pool"]["name"]
        for counter_set in raw_slice["spec"].get("sharedCounters") or ():
            for name, counter in counter_set["counters"].items():
                counters[pool][counter_set["name"], name] = Quantity(counter["value"]).value
    return counters


def _consume(left: Counters, device: JSON) -> bool:
    """Subtract what the device consumes; False, and nothing subtracted, if too little is left."""
    needed = {
        (consumption["counterSet"], name): Quantity(counter["value"]).value
        for consumption in device.get("consumesCounters") or ()
        for name, counter in consumption["counters"].items()
    }
    if any(left.get(key, Fraction(0)) < amount for key, amount in needed.items()):
        return False
    for key, amount in needed.items():
        left[key] -= amount
    return True


def _shares(pool: str, device: JSON, requested: Mapping[str, str]) -> list[AllocatableDevice]:
    if not device.get("allowMultipleAllocations"):
        return [AllocatableDevice(pool, device["name"])]
    capacity = device.get("capacity") or {}
    consumed = {name: str(requested.get(name, _default(value))) for name, value in capacity.items()}
    amounts = [(Quantity(value["value"]).value, Quantity(consumed[name]).value) for name, value in capacity.items()]
    counts = [int(total / part) for total, part in amounts if part > 0]
    share = AllocatableDevice(pool, device["name"], shared=True, consumed=consumed)
    return [share] * min([MAX_SHARES, *counts])


def _default(capacity: JSON) -> str:
    """Return what a request consumes that names no amount."""
    return str(capacity.get("requestPolicy", {}).get("default", capacity["value"]))


def _different_devices_first(devices: list[AllocatableDevice]) -> list[AllocatableDevice]:
    seen: Counter[DeviceKey] = Counter()
    ranked = []
    for device in devices:
        ranked.append((seen[device.key], device))
        seen[device.key] += 1
    return [device for _, device in sorted(ranked, key=lambda pair: pair[0])]
