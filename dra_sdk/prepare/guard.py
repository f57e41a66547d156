"""The last line of defence against giving one device to two claims.

The scheduler normally prevents it; a lost or stale allocation does not. Two claims may hold a device together where
one of them has admin access, or where both hold shares of it (KEP-5075, `shareID`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dra_sdk.errors import DeviceHeldError
from dra_sdk.model.claim import AllocatedDevice
from dra_sdk.wire.state import ClaimState


def refuse_held(devices: Sequence[AllocatedDevice[Any]], others: Iterable[ClaimState]) -> None:
    """DeviceHeldError if one of `devices` is held by one of `others` and cannot be shared with it."""
    shared: dict[tuple[str, str], bool] = {}  # whether all that is wanted of a device are shares
    for mine in devices:
        if not mine.admin_access:
            key = mine.pool, mine.name
            shared[key] = bool(mine.share_id) and shared.get(key, True)
    for claim in others:
        for held in claim.devices:
            share = shared.get((held.pool, held.name))
            if share is None or held.admin_access or (share and held.share_id):
                continue
            raise DeviceHeldError(
                f"device {held.pool}/{held.name} is held by claim {claim.namespace}/{claim.name} ({claim.uid})"
            )
