"""Write a Kubernetes Dynamic Resource Allocation driver in forty lines: the names that every author meets.

`dra_sdk.settings`, `dra_sdk.nri` and `dra_sdk.extensions` have what only some need, `dra_sdk.hardware` the building
blocks, `dra_sdk.testing` the tests' tools. Source: KEP-4381. `docs/architecture.md` describes the packages below.
"""

from dra_sdk.errors import (
    ClaimError,
    ConfigError,
    DraError,
    HardwareError,
    NotNeededError,
    PermanentError,
    RetriableError,
    SettingsError,
)
from dra_sdk.model.claim import AllocatedDevice, Claim, ClaimConfig, Deadline, HeldClaim, HeldDevice, PreparedDevice
from dra_sdk.model.config import CelRule, OpaqueConfig
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
from dra_sdk.model.edits import ContainerEdits, DeviceNode, EnvList, IntelRdt, Mount, NetDevice, OciHook
from dra_sdk.model.metric import Gauge
from dra_sdk.model.quantity import Quantity
from dra_sdk.model.settings import DriverSettings
from dra_sdk.model.status import Condition, DeviceHealth, DeviceStatus, HealthStatus, NetworkData

__all__ = [
    "AllocatedDevice",
    "AttributeValue",
    "Capacity",
    "CelRule",
    "Claim",
    "ClaimConfig",
    "ClaimError",
    "Condition",
    "ConfigError",
    "ContainerEdits",
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
    "EnvList",
    "Gauge",
    "HardwareError",
    "HealthStatus",
    "HeldClaim",
    "HeldDevice",
    "IntelRdt",
    "Mount",
    "NetDevice",
    "NetworkData",
    "Node",
    "NodeAllocatable",
    "NodeSelection",
    "NotNeededError",
    "OciHook",
    "OpaqueConfig",
    "PermanentError",
    "PreparedDevice",
    "Quantity",
    "RequestPolicy",
    "ResourcePool",
    "RetriableError",
    "SettingsError",
    "Version",
]
