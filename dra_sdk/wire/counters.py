"""Which devices of a pool fit into its counter sets together (KEP-4815).

Source: resource.k8s.io/v1 CounterSet, DeviceCounterConsumption.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity


class CounterBudget:
    """What is left of the counters of a pool while devices take from them.

    takers: the devices that have taken from each counter set, by the set's name.

    `sets` are entries of `spec.sharedCounters`.
    """

    def __init__(self, sets: Iterable[JSON] = ()) -> None:
        self.takers: dict[str, list[str]] = {}
        self._left: dict[tuple[str, str], Fraction] = {}
        self.add(sets)

    def add(self, sets: Iterable[JSON]) -> None:
        """Add counter sets."""
        for counter_set in sets:
            for name, counter in counter_set["counters"].items():
                self._left[counter_set["name"], name] = Quantity(counter["value"]).value

    def take(self, device: JSON) -> bool:
        """Subtract what a device (an entry of `spec.devices`) consumes. False, and nothing changes, if that is more."""
        needed = {
            (consumption["counterSet"], name): Quantity(counter["value"]).value
            for consumption in device.get("consumesCounters") or ()
            for name, counter in consumption["counters"].items()
        }
        if any(self._left.get(counter, Fraction(0)) < amount for counter, amount in needed.items()):
            return False
        for counter, amount in needed.items():
            self._left[counter] -= amount
        for name in dict.fromkeys(counter_set for counter_set, _ in needed):
            self.takers.setdefault(name, []).append(device["name"])
        return True

    def rivals(self, device: JSON) -> list[str]:
        """Return the devices that have taken from the counter sets that a device consumes."""
        names = (consumption["counterSet"] for consumption in device.get("consumesCounters") or ())
        return list(dict.fromkeys(taker for name in names for taker in self.takers.get(name, ())))


def overlapping(devices: Iterable[JSON], sets: Iterable[JSON]) -> dict[str, list[str]]:
    """Return the devices that do not fit beside those before them, each with the devices that it excludes.

    Devices of a pool without counters in the API server may be allocated together, although they overlap.
    """
    budget = CounterBudget(sets)
    return {device["name"]: budget.rivals(device) for device in devices if not budget.take(device)}
