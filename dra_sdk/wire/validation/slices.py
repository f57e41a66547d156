"""ResourceSlices: driver, pool, nodes, and the limits of their devices and counter sets together.

Source: resource.k8s.io ResourceSliceSpec validation; KEP-5945 (skipNodeOperations).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dra_sdk.wire.profile import OLDEST, ServerProfile
from dra_sdk.wire.resource.slices import Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from dra_sdk.wire.validation.capacity import counter_sets, counters_of_1_34
from dra_sdk.wire.validation.devices import chosen_nodes, device, is_advanced
from dra_sdk.wire.validation.metadata import cluster_metadata
from dra_sdk.wire.validation.names import driver_name, fully_qualified_name, pool_name
from dra_sdk.wire.validation.problems import Problems, invalid, not_supported, required
from dra_sdk.wire.validation.rules import check_set, immutable

_OPERATIONS: Final = ("*", "NodePrepareResources", "NodeUnprepareResources")


def resource_slice(value: ResourceSlice, old: ResourceSlice | None, profile: ServerProfile) -> Problems:
    """Check a slice."""
    yield from cluster_metadata(value.metadata, None if old is None else old.metadata, profile)
    yield from _spec(value.spec, None if old is None else old.spec, "spec", profile)


def max_devices(devices: Sequence[Device], profile: ServerProfile) -> int:
    """Return the limit of devices for a slice with these devices."""
    limits = profile.limits
    if any(is_advanced(item, profile) for item in devices):
        return limits.advanced_devices_per_slice
    return limits.devices_per_slice


def skipped_operations(operations: list[str] | None, field: str, profile: ServerProfile) -> Problems:
    """Check the calls of the kubelet that a driver does not need (KEP-5945)."""

    def known(operation: str, where: str) -> Problems:
        if operation not in _OPERATIONS:
            yield not_supported(where, operation, _OPERATIONS)

    yield from check_set(operations, field, known, profile)
    if "NodePrepareResources" in (operations or ()) and not {"*", "NodeUnprepareResources"} & set(operations or ()):
        yield invalid(field, "must have NodeUnprepareResources if it has NodePrepareResources")


def _spec(spec: ResourceSliceSpec, old: ResourceSliceSpec | None, field: str, profile: ServerProfile) -> Problems:
    yield from driver_name(spec.driver, f"{field}.driver")
    yield from _pool(spec.pool, f"{field}.pool")
    if old is not None:
        yield from immutable(spec.pool.name, old.pool.name, f"{field}.pool.name")
        yield from immutable(spec.driver, old.driver, f"{field}.driver")
        yield from immutable(spec.node_name, old.node_name, f"{field}.nodeName")
    yield from _nodes(spec, field)
    if spec.shared_counters is not None and spec.devices is not None and profile.minor > OLDEST:
        yield invalid(field, "must have sharedCounters or devices, not both")
    yield from _devices(spec, old, f"{field}.devices", profile)
    yield from counter_sets(spec.shared_counters, f"{field}.sharedCounters", profile)
    if profile.minor == OLDEST and profile.enabled("DRAPartitionableDevices"):  # otherwise the server drops them first
        yield from counters_of_1_34(spec, field)
    if spec.partition_type_attribute is not None:
        yield from _partition_type(spec, spec.partition_type_attribute, field, profile)
    yield from skipped_operations(spec.skip_node_operations, f"{field}.skipNodeOperations", profile)


def _pool(pool: ResourcePool, field: str) -> Problems:
    yield from pool_name(pool.name, f"{field}.name")
    if pool.resource_slice_count <= 0:
        yield invalid(f"{field}.resourceSliceCount", f"must be greater than zero, is {pool.resource_slice_count}")
    if pool.generation < 0:
        yield invalid(f"{field}.generation", f"must not be negative, is {pool.generation}")


def _nodes(spec: ResourceSliceSpec, field: str) -> Problems:
    flags = {"allNodes": spec.all_nodes, "perDeviceNodeSelection": spec.per_device_node_selection}
    yield from chosen_nodes(spec, flags, field)
    if spec.node_selector is not None and (count := len(spec.node_selector.node_selector_terms or ())) != 1:
        yield invalid(f"{field}.nodeSelector.nodeSelectorTerms", f"must have exactly one term, has {count}")


def _devices(spec: ResourceSliceSpec, old: ResourceSliceSpec | None, field: str, profile: ServerProfile) -> Problems:
    before = {stored.name: stored for stored in reversed((old and old.devices) or ())}

    def check(item: Device, where: str) -> Problems:
        selects_nodes = bool(spec.per_device_node_selection)
        return device(item, where, profile, old=before.get(item.name), selects_nodes=selects_nodes)

    limit = max_devices(spec.devices or (), profile)
    yield from check_set(spec.devices, field, check, profile, key_field="name", at_most=limit)


def _partition_type(spec: ResourceSliceSpec, name: str, field: str, profile: ServerProfile) -> Problems:
    broken = list(fully_qualified_name(name, f"{field}.partitionTypeAttribute", profile))
    yield from broken
    consumers = [(index, consumer) for index, consumer in enumerate(spec.devices or ()) if consumer.consumes_counters]
    if not consumers:
        yield invalid(f"{field}.partitionTypeAttribute", "may only be set if devices consume counters")
    for index, consumer in consumers if not broken else ():
        where = f"{field}.devices[{index}].attributes[{name}]"
        attributes = consumer.attributes or {}
        found = attributes.get(name) or attributes.get(name.removeprefix(f"{spec.driver}/"))
        if found is None:
            yield required(
                where, "must be set, because the device consumes counters and partitionTypeAttribute names it"
            )
        elif found.string is None:
            yield invalid(where, "must be a string, because partitionTypeAttribute names it")
