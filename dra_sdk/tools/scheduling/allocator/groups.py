"""Compatibility groups: which devices may draw from one counter set at the same time.

Devices that declare groups for a counter set go together as long as there is a group that all of them declare; those
that declare none go with others that declare none.
Source: resource.k8s.io/v1 DeviceCounterConsumption.compatibilityGroups; k8s.io/dynamic-resource-allocation, structured
(1.37).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dra_sdk.tools.scheduling.allocator.allocated import Allocated
from dra_sdk.tools.scheduling.allocator.devices import PoolDevice
from dra_sdk.tools.scheduling.allocator.pools import Pool
from dra_sdk.tools.scheduling.allocator.slices import PoolId

Members = frozenset[str] | None
"""The groups that all devices on a counter set have in common; None where they declare none."""
Placed = Mapping[str, Members]
"""By counter set; one that no device is on is missing."""


class Groups:
    """What is on the counter sets of pools while the devices of an allocation are being chosen."""

    def __init__(self, allocated: Allocated) -> None:
        self._allocated = allocated
        self._placed: dict[PoolId, Placed] = {}

    def admits(self, pool: Pool, device: PoolDevice) -> bool:
        """Whether a device goes with what is on each of its counter sets, allocated before or in this allocation."""
        placed = self._of(pool)
        return all(name not in placed or goes_with(groups, placed[name]) for name, groups in declared(device))

    def place(self, pool: Pool, device: PoolDevice) -> Placed:
        """Puts a device that is admitted on its counter sets; what was there before, for `restore`."""
        before = self._of(pool)
        self._placed[pool.id] = _with(before, device)
        return before

    def restore(self, pool: Pool, before: Placed) -> None:
        """Takes back the latest device."""
        self._placed[pool.id] = before

    def _of(self, pool: Pool) -> Placed:
        found = self._placed.get(pool.id)
        if found is None:
            found = {}
            for device in pool.consumers():
                found = _with(found, device) if self._allocated.holds(device.id) else found
            self._placed[pool.id] = found
        return found


def _with(placed: Placed, device: PoolDevice) -> Placed:
    after = dict(placed)
    for name, groups in declared(device):
        after[name] = joined(groups, after[name]) if name in after else (groups or None)
    return after


def declared(device: PoolDevice) -> Iterator[tuple[str, frozenset[str]]]:
    """The counter sets of a device, each with the groups that it declares for it."""
    for each in device.json.get("consumesCounters") or ():
        yield each["counterSet"], frozenset(each.get("compatibilityGroups") or ())


def goes_with(groups: frozenset[str], members: Members) -> bool:
    """Whether a device with these groups may join these members."""
    return not groups if members is None else bool(groups & members)


def joined(groups: frozenset[str], members: Members) -> Members:
    """The members together with one more; who declares none changes nothing."""
    return members & groups if members is not None and groups else members
