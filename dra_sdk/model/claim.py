"""A claim as hooks see it: allocated, checked, with its configuration decoded.

Source: resource.k8s.io/v1 ResourceClaim, AllocationResult, DeviceRequestAllocationResult. A claim contains only the
devices of this driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from dra_sdk.model.config import OpaqueConfig
from dra_sdk.model.device import AttributeValue, Device
from dra_sdk.model.driver import Node
from dra_sdk.model.edits import ContainerEdits
from dra_sdk.model.quantity import Quantity
from dra_sdk.model.status import DeviceStatus

ConfigT = TypeVar("ConfigT", bound=OpaqueConfig | None)


def base_request(request: str) -> str:
    """Return the name of a request without `/subrequest`, the chosen alternative of `firstAvailable`."""
    return request.partition("/")[0]


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """One device that is set up. `AllocatedDevice.prepared` makes it.

    request: request as allocated, `request` or `request/subrequest`.
    pool: pool of the device.
    name: name of the device.
    share_id: UUID of the share if the device allows multiple allocations. None otherwise.
    edits: what the device changes in the containers that use its request, and only in those.
    data: JSON object of the driver's own. `HeldDevice.data` returns it until the claim is unprepared.
    cdi_name: name of the CDI device. None: the SDK makes one. Devices of one claim may share a name if their edits are
        equal. Devices of two claims must not.
    status: entry of the device in `status.devices` of the claim, written soon afterwards. None: no entry.
    metadata: attributes to add to the file that containers can read (see `DriverInfo.metadata`), by name.
    """

    request: str
    pool: str
    name: str
    share_id: str | None = None
    edits: ContainerEdits = field(default_factory=ContainerEdits)
    data: Mapping[str, Any] = field(default_factory=dict)
    cdi_name: str | None = None
    status: DeviceStatus | None = None
    metadata: Mapping[str, AttributeValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AllocatedDevice(Generic[ConfigT]):
    """One device that the scheduler allocated to a claim (DeviceRequestAllocationResult).

    request: request as allocated: `request`, or `request/subrequest` for a request with alternatives.
    pool: pool of the device.
    name: name of the device.
    config: configuration that applies: the last one for this request, where those of the claim follow those of the
        DeviceClass. The defaults of the first class of `DriverInfo.configs` if there is none. None if the driver
        accepts no configuration.
    configs: every configuration for this request, in that order.
    device: the device as the driver published it. A claim with a device that the driver does not publish never reaches
        the hook.
    share_id: UUID of the share if the device allows multiple allocations. None otherwise.
    admin_access: the claim may use the device although it is allocated to others (KEP-5018).
    consumed_capacity: amount that this allocation takes of each capacity, by the capacity's name (KEP-5075). Empty if
        the device does not allow multiple allocations.
    """

    request: str
    pool: str
    name: str
    config: ConfigT
    configs: Sequence[ConfigT] = ()
    device: Device | None = None
    share_id: str | None = None
    admin_access: bool = False
    consumed_capacity: Mapping[str, Quantity] = field(default_factory=dict)

    @property
    def base_request(self) -> str:
        """Name of the request in the claim, without `/subrequest`."""
        return base_request(self.request)

    def prepared(
        self,
        edits: ContainerEdits | None = None,
        *,
        data: Mapping[str, Any] | None = None,
        cdi_name: str | None = None,
        status: DeviceStatus | None = None,
        metadata: Mapping[str, AttributeValue] | None = None,
    ) -> PreparedDevice:
        """Return the value to yield from `dra_prepare` once this device is set up. Arguments: see PreparedDevice."""
        return PreparedDevice(
            self.request,
            self.pool,
            self.name,
            self.share_id,
            edits or ContainerEdits(),
            data or {},
            cdi_name,
            status,
            metadata or {},
        )


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """One device of a claim, as its state file has it.

    request, pool, name, share_id, admin_access, consumed_capacity: as in AllocatedDevice.
    data: what the driver gave as `PreparedDevice.data`. Empty until the device is prepared.
    """

    request: str
    pool: str
    name: str
    share_id: str | None = None
    admin_access: bool = False
    consumed_capacity: Mapping[str, Quantity] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim that holds devices of this driver on this node, read from its state file.

    namespace: namespace of the ResourceClaim.
    name: name of the ResourceClaim.
    uid: UID of the ResourceClaim.
    devices: devices of this driver, in allocation order.
    journal: what `Claim.journal` recorded, oldest first.
    complete: False if its preparation began but did not end, for instance because the process was killed, and in a
        second attempt to undo it.
    rebooted: True if the node was rebooted since.
    """

    namespace: str
    name: str
    uid: str
    devices: Sequence[HeldDevice] = ()
    journal: Sequence[Mapping[str, Any]] = ()
    complete: bool = True
    rebooted: bool = False

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name} ({self.uid})"


@dataclass(frozen=True, slots=True)
class Claim(Generic[ConfigT]):
    """An allocated claim, the argument of `dra_prepare`.

    namespace: namespace of the ResourceClaim.
    name: name of the ResourceClaim.
    uid: UID of the ResourceClaim.
    node: node on which the devices are prepared.
    devices: devices of this driver, in allocation order.
    raw: the ResourceClaim as the API server returned it.
    held: returns the other claims that hold devices of this driver on this node. So a driver needs no memory of its
        own.
    journal: records a JSON object in the claim's state file before it returns. `HeldClaim.journal` returns them, also
        after a crash: record what must be undone before you do it.
    """

    namespace: str
    name: str
    uid: str
    node: Node
    devices: Sequence[AllocatedDevice[ConfigT]]
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)
    held: Callable[[], Sequence[HeldClaim]] = field(repr=False, default=tuple)
    journal: Callable[[Mapping[str, Any]], None] = field(repr=False, default=lambda _entry: None)

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name} ({self.uid})"
