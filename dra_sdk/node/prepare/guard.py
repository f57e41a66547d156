"""The last line of defence against giving one device to two claims.

The scheduler normally prevents it; a lost or stale allocation does not. Two claims may hold a device together where
one of them has admin access, or where both hold shares of it (KEP-5075, `shareID`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dra_sdk.errors import DeviceHeldError, HookError
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


def refuse_taken_names(state: ClaimState, others: Iterable[ClaimState]) -> None:
    """HookError if a CDI device of `state` has the name of one of another claim: runtimes drop both of them."""
    mine = {cdi_id for device in state.devices for cdi_id in device.cdi_ids}
    for claim in others:
        for name in (name for device in claim.devices for name in device.cdi_ids if name in mine):
            raise HookError(
                f"dra_prepare gave the CDI name {name.partition('=')[2]!r}, which a device of claim "
                f"{claim.namespace}/{claim.name} ({claim.uid}) has; a claim's UID in it would tell them apart"
            )
