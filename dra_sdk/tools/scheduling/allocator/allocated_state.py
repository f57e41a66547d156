"""What is in use: the devices, shares and capacity that allocated claims hold. Admin access holds nothing.

Source: KEP-4381, KEP-5075 (consumable capacity); k8s.io/dynamic-resource-allocation, structured/schedulerapi,
AllocatedState.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Self

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.devices import DeviceId
from dra_sdk.tools.scheduling.allocator.quantities import parse_quantity

NanoCapacity = dict[str, int]
"""Amounts of capacity by its name, in billionths."""


class AllocatedState:
    """The devices that are in use.

    devices: those that one claim holds alone.
    share_ids: the IDs of the shares of each shared device.
    aggregated_capacity: what all shares of a device consume together, in billionths by capacity.
    """

    __slots__ = ("aggregated_capacity", "devices", "share_ids")

    def __init__(self) -> None:
        self.devices: set[DeviceId] = set()
        self.share_ids: dict[DeviceId, set[str]] = {}
        self.aggregated_capacity: dict[DeviceId, NanoCapacity] = {}

    @classmethod
    def of(cls, claims: Iterable[JSON]) -> Self:
        """Return what these claims hold; claims without an allocation hold nothing."""
        state = cls()
        for claim in claims:
            state.add(claim)
        return state

    def add(self, claim: JSON) -> None:
        """Add the devices of an allocated claim."""
        for device, result in held_devices(claim):
            share = result.get("shareID")
            if share is None:
                self.devices.add(device)
                continue
            self.share_ids.setdefault(device, set()).add(share)
            if consumed := result.get("consumedCapacity"):
                self.consume(device, consumed)

    def remove(self, claim: JSON) -> None:
        """Release the devices of an allocated claim."""
        for device, result in held_devices(claim):
            share = result.get("shareID")
            if share is None:
                self.devices.discard(device)
                continue
            ids = self.share_ids.get(device, set())
            ids.discard(share)
            if not ids:
                self.share_ids.pop(device, None)
            if consumed := result.get("consumedCapacity"):
                self.consume(device, consumed, -1)
                if not any(self.aggregated_capacity[device].values()):
                    del self.aggregated_capacity[device]

    def consume(self, device: DeviceId, consumed: Mapping[str, Any], shares: int = 1) -> None:
        """Add what so many shares of a device consume of its capacity, quantities by name; -1 removes one share."""
        total = self.aggregated_capacity.setdefault(device, {})
        for name, value in consumed.items():
            total[name] = total.get(name, 0) + shares * parse_quantity(value).nano

    def unavailable_devices(self, *, sharing: bool) -> Collection[DeviceId]:
        """Return the devices that no other claim can have; without `sharing`, shared devices are among them."""
        return self.devices if sharing or not self.share_ids else self.devices | self.share_ids.keys()

    def is_in_use(self, device: DeviceId) -> bool:
        """Return whether any claim uses the device, alone or shared."""
        return device in self.devices or device in self.share_ids or device in self.aggregated_capacity


def held_devices(claim: JSON) -> Iterator[tuple[DeviceId, JSON]]:
    """Yield the devices that a claim holds, with their allocation results; those for admin access are not held."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or []:
        if not result.get("adminAccess"):
            yield DeviceId.of(result), result
