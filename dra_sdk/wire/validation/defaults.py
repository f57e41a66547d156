"""What the API server fills in, or forgets, before it validates.

Source: the defaulting functions of resource.k8s.io; apiserver pkg/endpoints/handlers for owners that are given twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from dra_sdk.model.quantity import Quantity
from dra_sdk.wire.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from dra_sdk.wire.resource.claims import DeviceClaim, DeviceSubRequest, ExactDeviceRequest
from dra_sdk.wire.resource.device import Counter, Device, DeviceCapacity, DeviceToleration
from dra_sdk.wire.resource.metadata import TopLevel


def set_defaults(value: TopLevel) -> None:
    """Fill in `value`. The time of a taint stays open: the server sets it to the current second."""
    if owners := value.metadata.owner_references:
        value.metadata.owner_references = [each for index, each in enumerate(owners) if each not in owners[:index]]
    match value:
        case ResourceSlice():
            if "generation" not in value.spec.pool.model_fields_set:
                value.spec.pool.generation = 0  # stored even if it is zero
            for device in value.spec.devices or ():
                set_device_defaults(device)
            for counters in value.spec.shared_counters or ():
                _amounts((counters.counters or {}).values())
        case ResourceClaim():
            _claim(value.spec.devices)
            allocation = value.status.allocation
            for result in (allocation and allocation.devices.results) or ():
                _tolerations(result.tolerations or ())
        case ResourceClaimTemplate():
            _claim(value.spec.spec.devices)
        case DeviceClass() | DeviceTaintRule():
            pass  # nothing of theirs has a default


def set_device_defaults(device: Device) -> None:
    """Fill in one device."""
    for mapping in (device.node_allocatable_resource_mappings or {}).values():
        if mapping.allocation_multiplier is None:
            mapping.allocation_multiplier = Quantity(1)
    _amounts((device.capacity or {}).values())
    for consumed in device.consumes_counters or ():
        _amounts((consumed.counters or {}).values())


def _amounts(holders: Iterable[Counter | DeviceCapacity]) -> None:
    """A missing amount is stored as zero."""
    for each in holders:
        if "value" not in each.model_fields_set:
            each.value = Quantity(0)


def _claim(claim: DeviceClaim) -> None:
    for request in claim.requests or ():
        for each in (request.exactly, *(request.first_available or ())):
            if each is not None:
                _request(each)


def _request(request: ExactDeviceRequest | DeviceSubRequest) -> None:
    request.allocation_mode = request.allocation_mode or "ExactCount"
    if request.allocation_mode == "ExactCount" and not request.count:
        request.count = 1
    _tolerations(request.tolerations or ())


def _tolerations(tolerations: Iterable[DeviceToleration]) -> None:
    for toleration in tolerations:
        toleration.operator = toleration.operator or "Equal"
