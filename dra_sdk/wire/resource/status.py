"""resource.k8s.io/v1 ResourceClaimStatus: what was allocated, for whom, and how the devices do."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from dra_sdk.wire.resource.base import (
    ADMIN_ACCESS,
    BINDING,
    CONSUMABLE,
    SKIP_OPERATIONS,
    AmountItem,
    Available,
    Object,
    TextItem,
    Timestamp,
)
from dra_sdk.wire.resource.configuration import OpaqueDeviceConfiguration
from dra_sdk.wire.resource.device import DeviceToleration
from dra_sdk.wire.resource.metadata import Condition, NodeSelector


class DeviceAllocationConfiguration(Object):
    """Configuration that came from the class or the claim."""

    source: str = ""
    requests: list[TextItem] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


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
    """What was allocated, and where it can be used."""

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
    """How an allocated network device looks in the pod."""

    interface_name: str = ""
    ips: list[TextItem] | None = None
    hardware_address: str = ""


class AllocatedDeviceStatus(Object):
    """How an allocated device does, by its driver."""

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
