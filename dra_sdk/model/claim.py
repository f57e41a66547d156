"""A claim as hooks see it: allocated, checked, with its configuration decoded.

Source: resource.k8s.io/v1 ResourceClaim, AllocationResult, DeviceRequestAllocationResult. Only the results of this
driver are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from dra_sdk.model.config import OpaqueConfig
from dra_sdk.model.device import AttributeValue, Device
from dra_sdk.model.edits import ContainerEdits
from dra_sdk.model.node import Node
from dra_sdk.model.quantity import Quantity
from dra_sdk.model.status import DeviceStatus

ConfigT = TypeVar("ConfigT", bound=OpaqueConfig | None)


def base_request(request: str) -> str:
    """The name of a request without `/subrequest`, which names the chosen alternative of `firstAvailable`."""
    return request.partition("/")[0]


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """One device, set up.

    `edits` reach exactly the containers that use the device's request. `data` is a JSON object that is remembered with
    the claim until it is unprepared, for the driver's own use. `cdi_name` overrides the name of the CDI device; devices
    of one claim may share a name if their edits are equal, those of two claims may not. `status` is written into the
    claim's `status.devices` soon afterwards. `metadata` adds attributes to the file that containers can read (see
    `DriverInfo.metadata`).
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
    """One device that the scheduler gave to a claim.

    `request` is as allocated, so `request/subrequest` where alternatives were asked for. `config` is the one that
    applies: of the entries for this request the last, and the claim's win over the class's; `configs` holds them all in
    that order. `device` is what the driver published: a claim with a device that it does not publish is refused before.
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
        """The request's name in the claim, without `/subrequest`."""
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
        """The value to yield from `dra_prepare` once this device is set up."""
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
    """What is remembered of one device of a claim; `data` is empty until the device was prepared."""

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

    `complete` is False while its preparation has begun but not ended, for instance because the process was killed, and
    in a second attempt to undo it.
    `rebooted` is True where the node was rebooted since. `journal` holds what `Claim.journal` recorded, oldest first.
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
    """An allocated claim, handed to `dra_prepare`.

    `devices` are this driver's, in allocation order. `held` calls up the other claims that hold devices of this
    driver on this node, so that a driver needs no memory of its own. `raw` is the ResourceClaim as the API server
    returned it.
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
