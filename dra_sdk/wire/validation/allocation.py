"""What was allocated to a claim. Source: resource.k8s.io AllocationResult validation."""

from __future__ import annotations

from typing import Final

from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource.device import DeviceToleration
from dra_sdk.wire.resource.status import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceRequestAllocationResult,
)
from dra_sdk.wire.validation.binding import binding_conditions
from dra_sdk.wire.validation.claims import Names, reference, references
from dra_sdk.wire.validation.lists import check_list
from dra_sdk.wire.validation.names import dns_label, driver_name, pool_name, uuid
from dra_sdk.wire.validation.nodes import node_selector
from dra_sdk.wire.validation.opaque import opaque
from dra_sdk.wire.validation.problems import Problems, not_supported, required
from dra_sdk.wire.validation.slices import skipped_operations
from dra_sdk.wire.validation.taints import toleration

SOURCES: Final = ("FromClaim", "FromClass")
_FIRST_TO_CHECK_TOLERATIONS: Final = 37


def allocation(value: AllocationResult, field: str, names: Names, profile: ServerProfile) -> Problems:
    """A new allocation; `names` are the requests of the claim."""

    def result(item: DeviceRequestAllocationResult, where: str) -> Problems:
        return _result(item, where, names, profile)

    def config(item: DeviceAllocationConfiguration, where: str) -> Problems:
        return _config(item, where, names, profile)

    devices, limits = value.devices, profile.limits
    yield from check_list(devices.results, f"{field}.devices.results", result, profile, at_most=limits.results)
    yield from check_list(devices.config, f"{field}.devices.config", config, profile, at_most=limits.allocated_configs)
    if value.node_selector is not None:
        yield from node_selector(value.node_selector, f"{field}.nodeSelector")


def _result(item: DeviceRequestAllocationResult, field: str, names: Names, profile: ServerProfile) -> Problems:
    def tolerate(value: DeviceToleration, where: str) -> Problems:
        return toleration(value, where, profile)

    yield from reference(item.request, f"{field}.request", names)
    yield from driver_name(item.driver, f"{field}.driver")
    yield from pool_name(item.pool, f"{field}.pool")
    yield from dns_label(item.device, f"{field}.device")
    if profile.minor >= _FIRST_TO_CHECK_TOLERATIONS:
        yield from check_list(item.tolerations, f"{field}.tolerations", tolerate, profile)
    yield from binding_conditions(item.binding_conditions, item.binding_failure_conditions, field, profile)
    if item.share_id is not None:
        yield from uuid(item.share_id, f"{field}.shareID")
    yield from skipped_operations(item.skip_node_operations, f"{field}.skipNodeOperations", profile)


def _config(item: DeviceAllocationConfiguration, field: str, names: Names, profile: ServerProfile) -> Problems:
    if not item.source:
        yield required(f"{field}.source")
    elif item.source not in SOURCES:
        yield not_supported(f"{field}.source", item.source, SOURCES)
    yield from references(item.requests, f"{field}.requests", names, profile)
    yield from opaque(item.opaque, field, profile)
