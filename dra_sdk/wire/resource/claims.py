"""resource.k8s.io/v1 ResourceClaim and ResourceClaimTemplate: requests, and the status with the allocation."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from dra_sdk.wire.resource.base import (
    ADMIN_ACCESS,
    BINDING,
    CONSUMABLE,
    SKIP_OPERATIONS,
    TAINTS,
    AmountItem,
    Available,
    Int64,
    Object,
    TextItem,
    Timestamp,
)
from dra_sdk.wire.resource.metadata import Condition, NodeSelector, ObjectMeta, TopLevel
from dra_sdk.wire.resource.slices import DeviceToleration

DERIVED = Available(("DRADerivedAttributes",), since=37)


class OpaqueDeviceConfiguration(Object):
    """Parameters that only the driver understands."""

    driver: str = ""
    parameters: Any = None


class CELDeviceSelector(Object):
    """A CEL expression over a device."""

    expression: str = ""


class DeviceSelector(Object):
    """A condition on a device."""

    cel: CELDeviceSelector | None = None


class CapacityRequirements(Object):
    """The amounts of capacities that a request needs."""

    requests: dict[str, AmountItem] | None = None


class DeviceDerivedAttribute(Object):
    """An attribute computed for one request."""

    name: str = ""
    expression: str = ""


class NamedRequest(Object):
    """A request or an alternative of one; its name comes first, as the API server writes it."""

    name: str = ""


class RequestedDevices(Object):
    """The fields that both kinds of requests have."""

    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: Annotated[list[DeviceToleration] | None, TAINTS] = None
    capacity: Annotated[CapacityRequirements | None, CONSUMABLE] = None
    derived_attributes: Annotated[list[DeviceDerivedAttribute] | None, DERIVED] = None


class ExactDeviceRequest(RequestedDevices):
    """A request for devices of one class."""

    admin_access: Annotated[bool | None, ADMIN_ACCESS] = None


class DeviceSubRequest(RequestedDevices, NamedRequest):
    """One alternative of a request."""


class DeviceRequest(NamedRequest):
    """A request: exactly this, or the first alternative that is available."""

    exactly: ExactDeviceRequest | None = None
    first_available: Annotated[list[DeviceSubRequest] | None, Available(("DRAPrioritizedList",))] = None


class DeviceConstraint(Object):
    """An attribute that must be equal, or distinct, for the devices of several requests."""

    requests: list[TextItem] | None = None
    match_attribute: str | None = None
    distinct_attribute: Annotated[str | None, CONSUMABLE] = None


class DeviceClaimConfiguration(Object):
    """Configuration for some requests, or all."""

    requests: list[TextItem] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Object):
    """Everything a claim asks for."""

    requests: list[DeviceRequest] | None = None
    constraints: list[DeviceConstraint] | None = None
    config: list[DeviceClaimConfiguration] | None = None


class ResourceClaimSpec(Object):
    """The immutable part of a claim."""

    devices: DeviceClaim = Field(default_factory=DeviceClaim)


class DeviceAllocationConfiguration(DeviceClaimConfiguration):
    """Configuration from the class or from the claim."""

    source: str = ""


class DeviceRequestAllocationResult(Object):
    """One allocated device."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: Annotated[bool | None, ADMIN_ACCESS] = None
    tolerations: list[DeviceToleration] | None = None
    binding_conditions: Annotated[list[TextItem] | None, BINDING] = None
    binding_failure_conditions: Annotated[list[TextItem] | None, BINDING] = None
    share_id: Annotated[str | None, CONSUMABLE] = Field(default=None, alias="shareID")
    consumed_capacity: Annotated[dict[str, AmountItem] | None, CONSUMABLE] = None
    skip_node_operations: Annotated[list[TextItem] | None, SKIP_OPERATIONS] = None


class DeviceAllocationResult(Object):
    """All allocated devices, and their configuration."""

    results: list[DeviceRequestAllocationResult] | None = None
    config: list[DeviceAllocationConfiguration] | None = None


class AllocationResult(Object):
    """The allocated devices, and the nodes that can use them."""

    devices: DeviceAllocationResult = Field(default_factory=DeviceAllocationResult)
    node_selector: NodeSelector | None = None
    allocation_timestamp: Timestamp | None = None


class ResourceClaimConsumerReference(Object):
    """Who may use the claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class NetworkDeviceData(Object):
    """The network interface of an allocated device in the pod."""

    interface_name: str = ""
    ips: list[TextItem] | None = None
    hardware_address: str = ""


class AllocatedDeviceStatus(Object):
    """What the driver reports about an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: Annotated[str | None, CONSUMABLE] = Field(default=None, alias="shareID")
    conditions: list[Condition] | None = None
    data: Any = None
    network_data: NetworkDeviceData | None = None


class ResourceClaimStatus(Object):
    """The status of a claim."""

    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumerReference] | None = None
    devices: Annotated[list[AllocatedDeviceStatus] | None, Available(("DRAResourceClaimDeviceStatus",))] = None


class ResourceClaim(TopLevel):
    """A request for devices and its allocation."""

    spec: ResourceClaimSpec = Field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = Field(default_factory=ResourceClaimStatus)


class ResourceClaimTemplateSpec(Object):
    """The claim that is created for each pod."""

    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = Field(default_factory=ResourceClaimSpec)


class ResourceClaimTemplate(TopLevel):
    """A template: each pod that refers to it gets its own claim."""

    spec: ResourceClaimTemplateSpec = Field(default_factory=ResourceClaimTemplateSpec)
