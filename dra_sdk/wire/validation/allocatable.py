"""How a device accounts against resources of its node. Source: KEP-5517, which 1.36 and 1.37 write differently."""

from __future__ import annotations

from collections.abc import Mapping

from dra_sdk.model.quantity import Quantity
from dra_sdk.wire.resource.device import (
    Device,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
    NodeAllocatableResourceMapping,
)
from dra_sdk.wire.validation.problems import Problems, invalid, not_found, required, show


def node_allocatable(device: Device, field: str) -> Problems:
    """The mappings of a device, in the form of either release."""
    capacities = device.capacity or {}
    for name, mapping in (device.node_allocatable_resource_mappings or {}).items():
        yield from _mapping_of_1_36(name, mapping, f"{field}.nodeAllocatableResourceMappings[{name}]", capacities)
    for name, each in (device.node_allocatable_resources or {}).items():
        yield from _resource(name, each, f"{field}.nodeAllocatableResources[{name}]", capacities)


def _mapping_of_1_36(
    name: str, mapping: NodeAllocatableResourceMapping, field: str, capacities: Mapping[str, object]
) -> Problems:
    if "/" in name and "kubernetes.io/" not in name:
        yield invalid(field, "must be a resource of nodes, such as cpu or memory")
    if mapping.allocation_multiplier is None and mapping.capacity_key is None:
        yield invalid(field, "must have an allocationMultiplier or a capacityKey")
    yield from _positive(mapping.allocation_multiplier, f"{field}.allocationMultiplier")
    yield from _capacity_key(mapping.capacity_key, f"{field}.capacityKey", capacities)


def _resource(name: str, value: NodeAllocatableResource, field: str, capacities: Mapping[str, object]) -> Problems:
    if name not in {"cpu", "memory"} and not name.startswith("hugepages-"):
        yield invalid(field, "must be cpu, memory or a size of huge pages")
    if value.mapping is None and value.overhead is None:
        yield required(field, "must have a mapping or an overhead")
    if value.mapping is not None:
        yield from _mapping(value.mapping, f"{field}.mapping", capacities)
    if value.overhead is not None:
        yield from _overhead(value.overhead, f"{field}.overhead")


def _mapping(mapping: NodeAllocatableMapping, field: str, capacities: Mapping[str, object]) -> Problems:
    by_capacity = mapping.capacity_key is not None
    if by_capacity == (mapping.device_multiplier is not None):
        yield invalid(field, "must have either a capacityKey or a deviceMultiplier")
    yield from _capacity_key(mapping.capacity_key, f"{field}.capacityKey", capacities)
    if by_capacity and mapping.capacity_multiplier is None:
        yield required(f"{field}.capacityMultiplier", "must be set beside capacityKey")
    elif by_capacity:
        yield from _positive(mapping.capacity_multiplier, f"{field}.capacityMultiplier")
    elif mapping.capacity_multiplier is not None:
        yield required(f"{field}.capacityKey", "must be set beside capacityMultiplier")
    yield from _positive(mapping.device_multiplier, f"{field}.deviceMultiplier")


def _overhead(overhead: NodeAllocatableOverhead, field: str) -> Problems:
    amounts = {"perPod": overhead.per_pod, "perContainer": overhead.per_container}
    if not any(amount is not None for amount in amounts.values()):
        yield invalid(field, "must have perPod or perContainer")
    for name, amount in amounts.items():
        if amount is not None and amount < 0:
            yield invalid(f"{field}.{name}", f"must not be negative, is {amount}")


def _positive(amount: Quantity | None, field: str) -> Problems:
    if amount is not None and amount <= 0:
        yield invalid(field, f"must be greater than zero, is {amount}")


def _capacity_key(key: str | None, field: str, capacities: Mapping[str, object]) -> Problems:
    if key == "":
        yield invalid(field, "must not be empty")
    elif key is not None and key not in capacities:
        yield not_found(field, f"the device has no capacity {show(key)}")
