"""Write a Kubernetes Dynamic Resource Allocation driver in forty lines: all names that an author imports.

Source: KEP-4381. `docs/architecture.md` describes the packages below.
"""

from dra_sdk.errors import (
    ApiError,
    ClaimError,
    ConfigError,
    DraError,
    HardwareError,
    PermanentError,
    RetriableError,
    SettingsError,
)
from dra_sdk.hookspecs import hookimpl
from dra_sdk.model.claim import AllocatedDevice, Claim, ClaimConfig, Deadline, HeldClaim, HeldDevice, PreparedDevice
from dra_sdk.model.config import CelRule, OpaqueConfig
from dra_sdk.model.container import Container, ContainerAdjustment, ContainerResources, PodSandbox
from dra_sdk.model.device import (
    AttributeValue,
    Capacity,
    CounterConsumption,
    CounterSet,
    Device,
    DeviceTaint,
    NodeAllocatable,
    NodeSelection,
    RequestPolicy,
    ResourcePool,
    Version,
)
from dra_sdk.model.driver import DriverInfo, Node
from dra_sdk.model.edits import ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, NetDevice
from dra_sdk.model.metric import Gauge
from dra_sdk.model.quantity import Quantity
from dra_sdk.model.settings import DriverSettings, FromText, HostPath, Seconds, Words, split_words
from dra_sdk.model.status import Condition, DeviceHealth, DeviceStatus, HealthStatus, NetworkData
from dra_sdk.model.step import Step

__all__ = [
    "AllocatedDevice",
    "ApiError",
    "AttributeValue",
    "Capacity",
    "CelRule",
    "Claim",
    "ClaimConfig",
    "ClaimError",
    "Condition",
    "ConfigError",
    "Container",
    "ContainerAdjustment",
    "ContainerEdits",
    "ContainerResources",
    "CounterConsumption",
    "CounterSet",
    "Deadline",
    "Device",
    "DeviceHealth",
    "DeviceNode",
    "DeviceStatus",
    "DeviceTaint",
    "DraError",
    "DriverInfo",
    "DriverSettings",
    "FromText",
    "Gauge",
    "HardwareError",
    "HealthStatus",
    "HeldClaim",
    "HeldDevice",
    "Hook",
    "HostPath",
    "IntelRdt",
    "Mount",
    "NetDevice",
    "NetworkData",
    "Node",
    "NodeAllocatable",
    "NodeSelection",
    "OpaqueConfig",
    "PermanentError",
    "PodSandbox",
    "PreparedDevice",
    "Quantity",
    "RequestPolicy",
    "ResourcePool",
    "RetriableError",
    "Seconds",
    "SettingsError",
    "Step",
    "Version",
    "Words",
    "hookimpl",
    "split_words",
]
