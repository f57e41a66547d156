"""resource.k8s.io/v1 ResourceClaim and ResourceClaimTemplate: what is asked for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dra_sdk.wire.resource.base import ADMIN_ACCESS, CONSUMABLE, TAINTS, AmountItem, Available, Int64, Object, TextItem
from dra_sdk.wire.resource.configuration import OpaqueDeviceConfiguration
from dra_sdk.wire.resource.device import DeviceToleration
from dra_sdk.wire.resource.metadata import ObjectMeta, TopLevel
from dra_sdk.wire.resource.status import ResourceClaimStatus

DERIVED = Available(("DRADerivedAttributes",), since=37)


class CELDeviceSelector(Object):
    """A CEL expression over a device."""

    expression: str = ""


class DeviceSelector(Object):
    """A condition on a device."""

    cel: CELDeviceSelector | None = None


class CapacityRequirements(Object):
    """How much of which capacities is wanted."""

    requests: dict[str, AmountItem] | None = None


class DeviceDerivedAttribute(Object):
    """An attribute computed for one request."""

    name: str = ""
    expression: str = ""


class ExactDeviceRequest(Object):
    """Devices of one kind."""

    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: Annotated[bool | None, ADMIN_ACCESS] = None
    tolerations: Annotated[list[DeviceToleration] | None, TAINTS] = None
    capacity: Annotated[CapacityRequirements | None, CONSUMABLE] = None
    derived_attributes: Annotated[list[DeviceDerivedAttribute] | None, DERIVED] = None


class DeviceSubRequest(Object):
    """One alternative of a request."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: Annotated[list[DeviceToleration] | None, TAINTS] = None
    capacity: Annotated[CapacityRequirements | None, CONSUMABLE] = None
    derived_attributes: Annotated[list[DeviceDerivedAttribute] | None, DERIVED] = None


class DeviceRequest(Object):
    """A request: exactly this, or the first that can be had."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: Annotated[list[DeviceSubRequest] | None, Available(("DRAPrioritizedList",))] = None


class DeviceConstraint(Object):
    """What devices of several requests must have in common, or must not."""

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


class ResourceClaim(TopLevel):
    """A request for devices, and what became of it."""

    spec: ResourceClaimSpec = Field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = Field(default_factory=ResourceClaimStatus)


class ResourceClaimTemplateSpec(Object):
    """The claim that is made for each pod."""

    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = Field(default_factory=ResourceClaimSpec)


class ResourceClaimTemplate(TopLevel):
    """Makes a claim for each pod that refers to it."""

    spec: ResourceClaimTemplateSpec = Field(default_factory=ResourceClaimTemplateSpec)
