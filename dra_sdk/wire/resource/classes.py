"""resource.k8s.io DeviceClass and DeviceTaintRule: what administrators write."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dra_sdk.wire.resource.base import Available, Object
from dra_sdk.wire.resource.claims import DeviceSelector, OpaqueDeviceConfiguration
from dra_sdk.wire.resource.metadata import Condition, TopLevel
from dra_sdk.wire.resource.slices import DeviceTaint

ONLY_1_34 = Available(until=34)


class DeviceClassConfiguration(Object):
    """Configuration for every claim that uses the class."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Object):
    """Which devices belong to a class, and how they are configured."""

    selectors: list[DeviceSelector] | None = None
    config: list[DeviceClassConfiguration] | None = None
    extended_resource_name: Annotated[str | None, Available(("DRAExtendedResource",))] = None


class DeviceClass(TopLevel):
    """A kind of device that claims can ask for."""

    spec: DeviceClassSpec = Field(default_factory=DeviceClassSpec)


class DeviceTaintSelector(Object):
    """Which devices get the taint: those that match every field that is set."""

    device_class_name: Annotated[str | None, ONLY_1_34] = None
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    selectors: Annotated[list[DeviceSelector] | None, ONLY_1_34] = None


class DeviceTaintRuleSpec(Object):
    """A taint and the devices it applies to."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = Field(default_factory=DeviceTaint)


class DeviceTaintRuleStatus(Object):
    """The progress of the eviction."""

    conditions: list[Condition] | None = None


class DeviceTaintRule(TopLevel):
    """A taint that an administrator, not the driver, sets on devices."""

    spec: DeviceTaintRuleSpec = Field(default_factory=DeviceTaintRuleSpec)
    status: Annotated[DeviceTaintRuleStatus, Available(since=35)] = Field(default_factory=DeviceTaintRuleStatus)
