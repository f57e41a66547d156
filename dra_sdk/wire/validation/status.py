"""The status of a claim: its allocation, its users, and how its devices do.

Source: resource.k8s.io ResourceClaimStatus validation. Who may write which part is not decided here.
"""

from __future__ import annotations

import ipaddress

from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource.claims import ResourceClaim
from dra_sdk.wire.resource.status import (
    AllocatedDeviceStatus,
    NetworkDeviceData,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from dra_sdk.wire.validation.allocation import allocation
from dra_sdk.wire.validation.claims import request_names
from dra_sdk.wire.validation.conditions import conditions
from dra_sdk.wire.validation.equality import immutable
from dra_sdk.wire.validation.lists import check_set, text
from dra_sdk.wire.validation.metadata import changed_metadata
from dra_sdk.wire.validation.names import dns_label, driver_name, pool_name, uuid
from dra_sdk.wire.validation.opaque import json_object
from dra_sdk.wire.validation.problems import Problems, forbidden, invalid, required, show, too_long

DeviceID = tuple[str, str, str, str]


def changed_status(value: ResourceClaim, old: ResourceClaim, profile: ServerProfile) -> Problems:
    """A claim whose status is updated."""
    yield from changed_metadata(value.metadata, old.metadata, profile)
    status, before = value.status, old.status
    yield from _users(status, before, "status.reservedFor", profile, deleted=bool(value.metadata.deletion_timestamp))
    yield from _devices(status, "status.devices", profile)
    if status.allocation is not None and before.allocation is not None:
        yield from immutable(status.allocation, before.allocation, "status.allocation")
    elif status.allocation is not None:
        names = request_names(value.spec.devices)
        yield from allocation(status.allocation, "status.allocation", names, profile)


def _users(
    status: ResourceClaimStatus, before: ResourceClaimStatus, field: str, profile: ServerProfile, *, deleted: bool
) -> Problems:
    def check(user: ResourceClaimConsumerReference, where: str) -> Problems:
        for name in ("resource", "name", "uid"):
            if not getattr(user, name):
                yield required(f"{where}.{name}")

    users, limit = status.reserved_for or [], profile.limits.reserved_for
    yield from check_set(users, field, check, profile, key=lambda user: user.uid, key_field="uid", at_most=limit)
    if users and status.allocation is None:
        yield forbidden(field, "must be empty while nothing is allocated")
    elif deleted and any(user not in (before.reserved_for or ()) for user in users):
        yield forbidden(field, "may not grow while the claim is being deleted")


def _devices(status: ResourceClaimStatus, field: str, profile: ServerProfile) -> Problems:
    results = (status.allocation and status.allocation.devices.results) or []
    allocated = {(each.driver, each.pool, each.device, each.share_id or "") for each in results}

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
    if device.share_id is not None:
        yield from uuid(device.share_id, f"{field}.shareID")
    yield from conditions(device.conditions, f"{field}.conditions", profile)
    if device.data is not None:
        yield from json_object(device.data, f"{field}.data", limits.status_data_length)
    if device.network_data is not None:
        yield from _network(device.network_data, f"{field}.networkData", profile)


def _network(data: NetworkDeviceData, field: str, profile: ServerProfile) -> Problems:
    limits = profile.limits
    yield from too_long(f"{field}.interfaceName", data.interface_name, limits.interface_name_length)
    yield from too_long(f"{field}.hardwareAddress", data.hardware_address, limits.hardware_address_length)
    yield from check_set(data.ips, f"{field}.ips", _address, profile, key=text, at_most=limits.addresses)


def _address(value: str, field: str) -> Problems:
    try:
        interface = ipaddress.ip_interface(value)
    except ValueError:
        yield invalid(field, f"must be an address with prefix such as 10.9.8.7/24 or 2001:db8::1/64, is {show(value)}")
        return
    address = interface.ip
    scoped = isinstance(address, ipaddress.IPv6Address) and address.scope_id
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    if scoped or mapped or value != (canonical := f"{address}/{interface.network.prefixlen}"):
        hint = "an IPv4 address" if mapped else "without a zone" if scoped else canonical
        yield invalid(field, f"must be in its usual form ({hint}), is {show(value)}")
