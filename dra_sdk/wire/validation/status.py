"""The status of a claim: its allocation, its consumers, and what drivers report about its devices.

Source: resource.k8s.io validation of ResourceClaimStatus and AllocationResult. Who may write which part is not decided
here.
"""

from __future__ import annotations

import ipaddress
from functools import partial
from typing import Final

from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource.claims import (
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceRequestAllocationResult,
    NetworkDeviceData,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from dra_sdk.wire.validation.claims import Names, json_object, opaque, reference, references, request_names
from dra_sdk.wire.validation.devices import binding_conditions, toleration
from dra_sdk.wire.validation.metadata import conditions, node_selector, updated_metadata
from dra_sdk.wire.validation.names import dns_label, driver_name, pool_name, uuid
from dra_sdk.wire.validation.problems import Problems, forbidden, invalid, not_supported, required, show, too_long
from dra_sdk.wire.validation.rules import check_list, check_set, if_set, immutable
from dra_sdk.wire.validation.slices import skipped_operations

DeviceID = tuple[str, str, str, str]
"""Driver, pool, device and share ID (empty without one)."""

SOURCES: Final = ("FromClaim", "FromClass")
_FIRST_TO_CHECK_TOLERATIONS: Final = 37


def claim_status(value: ResourceClaim, old: ResourceClaim, profile: ServerProfile) -> Problems:
    """Check a claim whose status is updated."""
    yield from updated_metadata(value.metadata, old.metadata, profile)
    status, before = value.status, old.status
    yield from _consumers(
        status, before, "status.reservedFor", profile, deleted=bool(value.metadata.deletion_timestamp)
    )
    yield from _devices(status, "status.devices", profile)
    if status.allocation is not None and before.allocation is not None:
        yield from immutable(status.allocation, before.allocation, "status.allocation")
    elif status.allocation is not None:
        names = request_names(value.spec.devices)
        yield from allocation(status.allocation, "status.allocation", names, profile)


def _consumers(
    status: ResourceClaimStatus, before: ResourceClaimStatus, field: str, profile: ServerProfile, *, deleted: bool
) -> Problems:
    def check(consumer: ResourceClaimConsumerReference, where: str) -> Problems:
        for name in ("resource", "name", "uid"):
            if not getattr(consumer, name):
                yield required(f"{where}.{name}")

    consumers, limit = status.reserved_for or [], profile.limits.reserved_for
    yield from check_set(consumers, field, check, profile, key_field="uid", at_most=limit)
    if consumers and status.allocation is None:
        yield forbidden(field, "must be empty while nothing is allocated")
    elif deleted and any(consumer not in (before.reserved_for or ()) for consumer in consumers):
        yield forbidden(field, "must not grow while the claim is being deleted")


def _devices(status: ResourceClaimStatus, field: str, profile: ServerProfile) -> Problems:
    results = (status.allocation and status.allocation.devices.results) or []
    allocated = {(result.driver, result.pool, result.device, result.share_id or "") for result in results}

    def check(device: AllocatedDeviceStatus, where: str) -> Problems:
        if _id(device) not in allocated:
            yield invalid(where, f"{'/'.join(filter(None, _id(device)))} is not allocated to the claim")
        yield from _device(device, where, profile)

    yield from check_set(status.devices, field, check, profile, key=_id, key_field="deviceID")


def _id(device: AllocatedDeviceStatus) -> DeviceID:
    return device.driver, device.pool, device.device, device.share_id or ""


def _device(device: AllocatedDeviceStatus, field: str, profile: ServerProfile) -> Problems:
    limits = profile.limits
    yield from driver_name(device.driver, f"{field}.driver")
    yield from pool_name(device.pool, f"{field}.pool")
    yield from dns_label(device.device, f"{field}.device")
    yield from if_set(uuid, device.share_id, f"{field}.shareID")
    yield from conditions(device.conditions, f"{field}.conditions", profile)
    if device.data is not None:
        yield from json_object(device.data, f"{field}.data", limits.status_data_length)
    if device.network_data is not None:
        yield from network_data(device.network_data, f"{field}.networkData", profile)


def network_data(data: NetworkDeviceData, field: str, profile: ServerProfile) -> Problems:
    """Check the network interface of a device in its pod."""
    limits = profile.limits
    yield from too_long(f"{field}.interfaceName", data.interface_name, limits.interface_name_length)
    yield from too_long(f"{field}.hardwareAddress", data.hardware_address, limits.hardware_address_length)
    yield from check_set(data.ips, f"{field}.ips", _address, profile, at_most=limits.addresses)


def _address(value: str, field: str) -> Problems:
    try:
        interface = ipaddress.ip_interface(value)
    except ValueError:
        yield invalid(
            field, f"must be an address with prefix length such as 10.9.8.7/24 or 2001:db8::1/64, is {show(value)}"
        )
        return
    address = interface.ip
    scoped = isinstance(address, ipaddress.IPv6Address) and address.scope_id
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    if scoped or mapped or value != (canonical := f"{address}/{interface.network.prefixlen}"):
        hint = "an IPv4 address" if mapped else "without a zone" if scoped else canonical
        yield invalid(field, f"must be in canonical form ({hint}), is {show(value)}")


def allocation(value: AllocationResult, field: str, names: Names, profile: ServerProfile) -> Problems:
    """Check a new allocation. `names` are the requests of the claim."""

    result = partial(_result, names=names, profile=profile)
    config = partial(_config, names=names, profile=profile)
    devices, limits = value.devices, profile.limits
    yield from check_list(devices.results, f"{field}.devices.results", result, profile, at_most=limits.results)
    yield from check_list(devices.config, f"{field}.devices.config", config, profile, at_most=limits.allocated_configs)
    yield from if_set(node_selector, value.node_selector, f"{field}.nodeSelector")


def _result(item: DeviceRequestAllocationResult, field: str, names: Names, profile: ServerProfile) -> Problems:
    yield from reference(item.request, f"{field}.request", names)
    yield from driver_name(item.driver, f"{field}.driver")
    yield from pool_name(item.pool, f"{field}.pool")
    yield from dns_label(item.device, f"{field}.device")
    if profile.minor >= _FIRST_TO_CHECK_TOLERATIONS:
        yield from check_list(item.tolerations, f"{field}.tolerations", partial(toleration, profile=profile), profile)
    yield from binding_conditions(item.binding_conditions, item.binding_failure_conditions, field, profile)
    yield from if_set(uuid, item.share_id, f"{field}.shareID")
    yield from skipped_operations(item.skip_node_operations, f"{field}.skipNodeOperations", profile)


def _config(item: DeviceAllocationConfiguration, field: str, names: Names, profile: ServerProfile) -> Problems:
    if not item.source:
        yield required(f"{field}.source")
    elif item.source not in SOURCES:
        yield not_supported(f"{field}.source", item.source, SOURCES)
    yield from references(item.requests, f"{field}.requests", names, profile)
    yield from opaque(item.opaque, field, profile)
