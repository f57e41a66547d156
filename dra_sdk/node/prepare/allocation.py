"""From a ResourceClaim to the devices that this driver must prepare, each with its configuration. Pure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from dra_sdk.errors import ClaimError
from dra_sdk.model.claim import AllocatedDevice
from dra_sdk.model.config import OpaqueConfig
from dra_sdk.model.device import Device
from dra_sdk.model.driver import DriverInfo
from dra_sdk.model.quantity import Quantity
from dra_sdk.node.prepare.config import default_config, resolve
from dra_sdk.wire.claim import ResourceClaim, Result
from dra_sdk.wire.dra import ClaimRef

log = logging.getLogger(__name__)
Published = Callable[[str, str], Device | None]
"""Looks up a published device by pool and name."""


def allocated_devices(
    info: DriverInfo, ref: ClaimRef, claim: ResourceClaim, published: Published
) -> list[AllocatedDevice[OpaqueConfig | None]]:
    """Check that `claim` is the one the kubelet means and is allocated; then this driver's devices in order.

    Raises ClaimError for a claim that was replaced, is not allocated, holds nothing of this driver or a device that is
    not published; ConfigError for configuration that cannot be used.
    """
    if claim.uid != ref.uid:
        raise ClaimError(f"the claim was replaced: it has UID {claim.uid} now")
    allocation = claim.allocation
    if allocation is None:
        raise ClaimError("the claim is not allocated")
    results = [each for each in allocation.results if each.driver == info.name]
    if not results:
        raise ClaimError(f"the claim's allocation holds no device of driver {info.name}")
    resolved = resolve(info, results, allocation.config)
    for label in resolved.unmatched:
        log.warning("%s: %s applies to none of its devices", ref, label)
    return [
        _device(info, result, configs, published) for result, configs in zip(results, resolved.configs, strict=True)
    ]


def _device(
    info: DriverInfo, result: Result, configs: Sequence[OpaqueConfig], published: Published
) -> AllocatedDevice[OpaqueConfig | None]:
    chain: list[OpaqueConfig | None] = list(configs) or [default_config(info)]
    try:
        consumed = {name: Quantity(amount) for name, amount in result.consumed_capacity.items()}
    except ValueError as error:
        raise ClaimError(f"device {result.pool}/{result.device}: consumedCapacity: {error}") from error
    device = published(result.pool, result.device)
    if device is None:  # unplugged since, or never there: KEP-4381 has the driver look before it sets up
        raise ClaimError(f"device {result.pool}/{result.device} is not among those that driver {info.name} publishes")
    return AllocatedDevice(
        result.request,
        result.pool,
        result.device,
        chain[-1],
        tuple(chain),
        device,
        result.share_id,
        result.admin_access,
        consumed,
    )
