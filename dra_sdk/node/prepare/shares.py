"""Whether the shares of a device (KEP-5075) together take more of a capacity than the device has.

The scheduler divides capacities, but its cache may be stale, and an allocation may be written by hand. So the node adds
up once more before it prepares: what a claim takes of a device, and what the claims that hold the device took.

Only capacities count, not whether the device may still be allocated several times: what was allocated before that
changed is prepared. Admin access takes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Final

from dra_sdk.errors import DeviceHeldError
from dra_sdk.model.claim import AllocatedDevice
from dra_sdk.model.device import Capacity, Device
from dra_sdk.model.quantity import Quantity
from dra_sdk.node.prepare.checkpoint import Checkpoint
from dra_sdk.node.prepare.state_files import Unreadable
from dra_sdk.texts import shortened

_SHOWN: Final = 3  # holders in a message


def refuse_overfull(
    devices: Iterable[AllocatedDevice[Any]], holders: Iterable[Checkpoint], unreadable: Iterable[Unreadable]
) -> None:
    """Raise DeviceHeldError if a claim's devices and the claims that hold them take more of a capacity than there is.

    Also if a holder's state file is damaged and no longer says how much its share takes.
    """
    shares = [device for device in devices if device.consumed_capacity and not device.admin_access]
    if not shares:
        return
    _refuse_unknown(shares, unreadable)
    taken: defaultdict[tuple[str, str, str], Fraction] = defaultdict(Fraction)
    takers: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for holder in holders:
        for held in holder.claim.devices:
            for name, amount in held.consumed_capacity.items() if not held.admin_access else ():
                taken[held.pool, held.name, name] += amount.value
                takers[held.pool, held.name, name].append(str(holder))
    for device in shares:
        for name, amount in device.consumed_capacity.items():
            key = device.pool, device.name, name
            has, before = _value(device.device, name), taken[key]
            if has is not None and amount > 0 and before + amount.value > has.value:
                rest = Quantity.of(before, binary=amount.binary)
                by = f", and {rest} of it is taken by {shortened(takers[key], _SHOWN)}" if takers[key] else ""
                raise DeviceHeldError(
                    f"the claim takes {amount} of capacity {name} of device {device.pool}/{device.name}, "
                    f"which has {has}{by}"
                )
            taken[key] = before + amount.value
            takers[key].append("the same claim")


def _refuse_unknown(shares: Iterable[AllocatedDevice[Any]], unreadable: Iterable[Unreadable]) -> None:
    wanted = {(device.pool, device.name) for device in shares}
    for file in unreadable:
        for held in file.claim.devices:
            unknown = held.share_id and not held.admin_access and not held.consumed_capacity
            if unknown and (held.pool, held.name) in wanted:
                raise DeviceHeldError(
                    f"how much {file.claim} takes of device {held.pool}/{held.name} is not known: {file.advice}"
                )


def _value(device: Device | None, name: str) -> Quantity | None:
    capacity = device.capacity.get(name) if device is not None else None
    if capacity is None:
        return None
    return Quantity(capacity.value if isinstance(capacity, Capacity) else capacity)
