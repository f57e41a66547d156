"""resource.k8s.io/v1 ResourceSlice: the devices of a pool, their attributes, capacities, counters and taints."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dra_sdk.model.quantity import Quantity
from dra_sdk.wire.resource.base import (
    BINDING,
    CONSUMABLE,
    LISTS,
    PARTITIONS,
    SKIP_OPERATIONS,
    TAINTS,
    Amount,
    AmountItem,
    Available,
    BoolItem,
    Int64,
    IntItem,
    Object,
    TextItem,
    Timestamp,
)
from dra_sdk.wire.resource.metadata import NodeSelector, TopLevel


class DeviceAttribute(Object):
    """An attribute: exactly one field is set."""

    int_value: Int64 | None = Field(default=None, alias="int")
    bool_value: bool | None = Field(default=None, alias="bool")
    string: str | None = None
    version: str | None = None
    ints: Annotated[list[IntItem] | None, LISTS] = None
    bools: Annotated[list[BoolItem] | None, LISTS] = None
    strings: Annotated[list[TextItem] | None, LISTS] = None
    versions: Annotated[list[TextItem] | None, LISTS] = None


class CapacityRequestPolicyRange(Object):
    """Amounts from `min` to `max` in steps."""

    min: Amount | None = None
    max: Amount | None = None
    step: Amount | None = None


class CapacityRequestPolicy(Object):
    """How much of a capacity one request may take."""

    default: Amount | None = None
    valid_values: list[AmountItem] | None = None
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Object):
    """An amount that a device has."""

    value: Amount = Field(default_factory=lambda: Quantity(0))
    request_policy: Annotated[CapacityRequestPolicy | None, CONSUMABLE] = None


class Counter(Object):
    """An amount in a counter set."""

    value: Amount = Field(default_factory=lambda: Quantity(0))


class DeviceCounterConsumption(Object):
    """What a device takes from one counter set."""

    counter_set: str = ""
    counters: dict[str, Counter] | None = None
    compatibility_groups: Annotated[list[TextItem] | None, Available(("DRADeviceCompatibilityGroups",), since=37)] = (
        None
    )


class DeviceTaint(Object):
    """A taint: keeps claims without a matching toleration away."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Timestamp | None = None


class DeviceToleration(Object):
    """A taint that a request tolerates."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class NodeAllocatableResourceMapping(Object):
    """How a device counts against a node resource, in the form of 1.36."""

    capacity_key: str | None = None
    allocation_multiplier: Amount | None = None


class NodeAllocatableMapping(Object):
    """How a device counts against a node resource, in the form of 1.37: by a capacity or by the device."""

    capacity_key: str | None = None
    capacity_multiplier: Amount | None = None
    device_multiplier: Amount | None = None


class NodeAllocatableOverhead(Object):
    """What a device takes from the node in addition, for each pod or container."""

    per_pod: Amount | None = None
    per_container: Amount | None = None


class NodeAllocatableResource(Object):
    """One node resource of a device, in the form of 1.37."""

    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class Device(Object):
    """One device of a ResourceSlice."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: Annotated[list[DeviceCounterConsumption] | None, PARTITIONS] = None
    node_name: Annotated[str | None, PARTITIONS] = None
    node_selector: Annotated[NodeSelector | None, PARTITIONS] = None
    all_nodes: Annotated[bool | None, PARTITIONS] = None
    taints: Annotated[list[DeviceTaint] | None, TAINTS] = None
    binds_to_node: Annotated[bool | None, BINDING] = None
    binding_conditions: Annotated[list[TextItem] | None, BINDING] = None
    binding_failure_conditions: Annotated[list[TextItem] | None, BINDING] = None
    allow_multiple_allocations: Annotated[bool | None, CONSUMABLE] = None
    node_allocatable_resource_mappings: Annotated[
        dict[str, NodeAllocatableResourceMapping] | None,
        Available(("DRANodeAllocatableResources",), since=36, until=36),
    ] = None
    node_allocatable_resources: Annotated[
        dict[str, NodeAllocatableResource] | None, Available(("DRANodeAllocatableResources",), since=37)
    ] = None


class CounterSet(Object):
    """Counters that partitions of one piece of hardware share."""

    name: str = ""
    counters: dict[str, Counter] | None = None


class ResourcePool(Object):
    """The pool of a slice, and the number of slices of that pool."""

    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(Object):
    """One slice of a pool."""

    driver: str = ""
    pool: ResourcePool = Field(default_factory=ResourcePool)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[Device] | None = None
    per_device_node_selection: Annotated[bool | None, PARTITIONS] = None
    shared_counters: Annotated[list[CounterSet] | None, PARTITIONS] = None
    partition_type_attribute: Annotated[str | None, Available(("DRAPartitionableDevicesType",), since=37)] = None
    skip_node_operations: Annotated[list[TextItem] | None, SKIP_OPERATIONS] = None


class ResourceSlice(TopLevel):
    """Devices that a driver offers."""

    spec: ResourceSliceSpec = Field(default_factory=ResourceSliceSpec)
