"""The devices that a driver has published since its start: what a report of health can be about.

A device that was unplugged is still known here, because a driver goes on to report it as Unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dra_sdk.model.device import ResourcePool
from dra_sdk.texts import closest

_LISTED: Final = 5  # devices that a message names


class KnownDevices:
    """The names of devices, each with its pools. Safe for threads that read; one thread adds."""

    def __init__(self) -> None:
        self._pools: dict[str, tuple[str, ...]] = {}

    def add(self, pools: Iterable[ResourcePool]) -> None:
        """Add what a discovery has found."""
        known = dict(self._pools)
        for pool in pools:
            for device in pool.devices:
                if pool.name not in (before := known.get(device.name, ())):
                    known[device.name] = (*before, pool.name)
        self._pools = known

    def pool_of(self, device: str, own: str) -> str:
        """Return the pool of a device whose report names none: the only one that has it, else `own`, the node's."""
        pools = self._pools.get(device, ())
        return pools[0] if len(pools) == 1 else own

    def problem(self, pool: str, device: str) -> str:
        """Return why a report about a device has no effect; empty if it has one, and before the first discovery."""
        pools = self._pools.get(device, ())
        if pool in pools or not self._pools:
            return ""
        if pools:
            places = f"pool {pools[0]}" if len(pools) == 1 else f"pools {', '.join(pools)}"
            return f"device {pool}/{device} is not published, but device {device} of {places} is: DeviceHealth(pool=…)"
        similar = closest(device, self._pools)
        published = ", ".join([*self._pools][:_LISTED]) + (", …" if len(self._pools) > _LISTED else "")
        hint = f"did you mean {similar}?" if similar else f"the driver publishes {published}"
        return f"device {pool}/{device} is not published; {hint}"
