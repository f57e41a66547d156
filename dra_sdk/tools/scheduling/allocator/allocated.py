"""What is in use: the devices, shares and capacity that allocated claims hold.

Source: KEP-4381, KEP-5075 (consumable capacity); the allocated state of k8s.io/dynamic-resource-allocation,
structured/schedulerapi. Results with admin access hold nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.amounts import amount

Capacity = dict[str, int]
"""Consumed capacity by its name, in billionths (see `amounts`)."""


class DeviceId(NamedTuple):
    """A device of the cluster; `str()` gives `driver/pool/device`."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class Allocated:
    """The devices that are in use.

    `devices` are held by one claim alone, `shares` those that claims share (the IDs of the shares by device), and
    `capacity` what all shares of a device consume together. `revision` changes with every change.
    """

    __slots__ = ("capacity", "devices", "revision", "shares")

    def __init__(self) -> None:
        self.devices: set[DeviceId] = set()
        self.shares: dict[DeviceId, set[str]] = {}
        self.capacity: dict[DeviceId, Capacity] = {}
        self.revision = 0

    @classmethod
    def of(cls, claims: Iterable[JSON]) -> Self:
        """What these claims hold; claims without an allocation hold nothing."""
        made = cls()
        for claim in claims:
            made.add(claim)
        return made

    def copy(self) -> Allocated:
        """An independent copy, for trying something out."""
        made = Allocated()
        made.devices = set(self.devices)
        made.shares = {device: set(ids) for device, ids in self.shares.items()}
        made.capacity = {device: dict(consumed) for device, consumed in self.capacity.items()}
        return made

    def add(self, claim: JSON) -> None:
        """Counts in what an allocated claim holds."""
        self.revision += 1
        for device, result in _held(claim):
            share = result.get("shareID")
            if share is None:
                self.devices.add(device)
                continue
            self.shares.setdefault(device, set()).add(share)
            if consumed := result.get("consumedCapacity"):
                self.consume(device, consumed)

    def remove(self, claim: JSON) -> None:
        """Gives back what an allocated claim held."""
        self.revision += 1
        for device, result in _held(claim):
            share = result.get("shareID")
            if share is None:
                self.devices.discard(device)
                continue
            self._release(device, share, result.get("consumedCapacity") or {})

    def consume(self, device: DeviceId, consumed: Mapping[str, Any]) -> None:
        """Counts in capacity of a shared device, quantities by name."""
        self.revision += 1
        total = self.capacity.setdefault(device, {})
        for name, value in consumed.items():
            total[name] = total.get(name, 0) + amount(value).nano

    def _release(self, device: DeviceId, share: str, consumed: Mapping[str, Any]) -> None:
        ids = self.shares.get(device, set())
        ids.discard(share)
        if not ids:
            self.shares.pop(device, None)
        total = self.capacity.get(device)
        if total is None:
            return
        for name, value in consumed.items():
            if name in total:
                total[name] -= amount(value).nano
        if consumed and not any(total.values()):
            del self.capacity[device]

    def exclusive(self, *, sharing: bool) -> Collection[DeviceId]:
        """The devices that no other claim can have; without the feature of sharing, shared ones are among them."""
        return self.devices if sharing or not self.shares else self.devices | self.shares.keys()

    def holds(self, device: DeviceId) -> bool:
        """Whether any claim uses the device, alone or shared."""
        return device in self.devices or device in self.shares or device in self.capacity


def _held(claim: JSON) -> Iterator[tuple[DeviceId, JSON]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or []:
        if not result.get("adminAccess"):
            yield DeviceId(result["driver"], result["pool"], result["device"]), result
