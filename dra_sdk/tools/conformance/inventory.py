"""What of a driver's slices can be allocated on the node at once: exclusive devices, and shares of others.

This is not the scheduler's match (see `scheduler`), but all that could be taken together: no other claim has it, it is
not tainted, and counters and capacity suffice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity

Counters = dict[tuple[str, str], Fraction]
"""What is left, by counter set and counter."""
MOST_SHARES = 64
_REPELLING = {"NoSchedule", "NoExecute"}


@dataclass(frozen=True)
class Slot:
    """One thing that can be allocated: a device, or where `shared` one share of it that consumes `consumed`."""

    pool: str
    device: str
    shared: bool = False
    consumed: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """The device."""
        return self.pool, self.device


def latest(slices: Iterable[JSON]) -> list[JSON]:
    """The slices of each pool's highest generation, which alone count."""
    found = list(slices)
    newest: dict[str, int] = defaultdict(int)
    for each in found:
        pool = each["spec"]["pool"]
        newest[pool["name"]] = max(newest[pool["name"]], pool["generation"])
    return [each for each in found if each["spec"]["pool"]["generation"] == newest[each["spec"]["pool"]["name"]]]


def whole(slices: Iterable[JSON]) -> bool:
    """Whether there is a slice, and each pool has as many as it says."""
    found = latest(slices)
    pools = Counter(each["spec"]["pool"]["name"] for each in found)
    return bool(found) and all(
        pools[each["spec"]["pool"]["name"]] == each["spec"]["pool"]["resourceSliceCount"] for each in found
    )


def devices(slices: Iterable[JSON]) -> Iterator[tuple[JSON, JSON]]:
    """Every device with the slice it is in."""
    for each in slices:
        for device in each["spec"].get("devices") or ():
            yield each, device


def slots(
    slices: Iterable[JSON],
    node: str,
    *,
    busy: Iterable[tuple[str, str]] = (),
    fits: Callable[[JSON], bool] = lambda _device: True,
    capacity: Mapping[str, str] | None = None,
) -> list[Slot]:
    """What can be allocated on `node` together, different devices first.

    Devices in `busy` (pool, device) and those that do not fit are left out; `capacity` is what each share asks for,
    where the request's policy is not to decide.
    """
    pools = latest(slices)
    counters = _counters(pools)
    taken = set(busy)
    found: list[Slot] = []
    for each, device in devices(pools):
        pool = each["spec"]["pool"]["name"]
        free = (pool, device["name"]) not in taken and not _repels(device) and _reachable(each["spec"], device, node)
        if free and fits(device) and _consume(counters[pool], device):
            found += _shares(pool, device, capacity or {})
    return _spread(found)


def published(slices: Iterable[JSON]) -> set[tuple[str, str]]:
    """All devices, by pool and name."""
    return {(each["spec"]["pool"]["name"], device["name"]) for each, device in devices(latest(slices))}


def _reachable(spec: JSON, device: JSON, node: str) -> bool:
    place = device if spec.get("perDeviceNodeSelection") else spec
    if place.get("nodeName"):
        return bool(place["nodeName"] == node)
    # Whether a selector chooses the node is the scheduler's business; a driver prepares what is allocated.
    return True


def _repels(device: JSON) -> bool:
    return any(taint.get("effect") in _REPELLING for taint in device.get("taints") or ())


def _counters(slices: Iterable[JSON]) -> dict[str, Counters]:
    found: dict[str, Counters] = defaultdict(dict)
    for each in slices:
        for counter_set in each["spec"].get("sharedCounters") or ():
            for name, counter in counter_set["counters"].items():
                found[each["spec"]["pool"]["name"]][counter_set["name"], name] = Quantity(counter["value"]).value
    return found


def _consume(left: Counters, device: JSON) -> bool:
    """Take what the device consumes; False, and nothing taken, where there is too little."""
    wanted = {
        (consumption["counterSet"], name): Quantity(counter["value"]).value
        for consumption in device.get("consumesCounters") or ()
        for name, counter in consumption["counters"].items()
    }
    if any(left.get(key, Fraction(0)) < amount for key, amount in wanted.items()):
        return False
    for key, amount in wanted.items():
        left[key] -= amount
    return True


def _shares(pool: str, device: JSON, asked: Mapping[str, str]) -> list[Slot]:
    if not device.get("allowMultipleAllocations"):
        return [Slot(pool, device["name"])]
    capacity = device.get("capacity") or {}
    consumed = {name: str(asked.get(name, _default(value))) for name, value in capacity.items()}
    amounts = [(Quantity(value["value"]).value, Quantity(consumed[name]).value) for name, value in capacity.items()]
    counts = [int(whole / part) for whole, part in amounts if part > 0]
    return [Slot(pool, device["name"], shared=True, consumed=consumed)] * min([MOST_SHARES, *counts])


def _default(capacity: JSON) -> str:
    """What a request that names no amount consumes."""
    return str(capacity.get("requestPolicy", {}).get("default", capacity["value"]))


def _spread(found: list[Slot]) -> list[Slot]:
    """Different devices first, then further shares of the same ones."""
    turns: dict[tuple[str, str], int] = defaultdict(int)
    keyed = []
    for slot in found:
        keyed.append((turns[slot.key], slot))
        turns[slot.key] += 1
    return [slot for _, slot in sorted(keyed, key=lambda each: each[0])]
