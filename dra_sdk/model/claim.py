"""A claim as hooks see it: allocated, checked, with its configuration decoded.

Source: resource.k8s.io/v1 ResourceClaim, AllocationResult, DeviceRequestAllocationResult. A claim contains only the
devices of this driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Generic, TypeVar

from dra_sdk.errors import RetriableError
from dra_sdk.model.config import OpaqueConfig
from dra_sdk.model.device import AttributeValue, Device
from dra_sdk.model.driver import Node
from dra_sdk.model.edits import ContainerEdits, EnvList
from dra_sdk.model.quantity import Quantity
from dra_sdk.model.status import DeviceStatus
from dra_sdk.model.undo import AT_ONCE, Undo

ConfigT = TypeVar("ConfigT", bound=OpaqueConfig | None)
WantedT = TypeVar("WantedT", bound=OpaqueConfig)


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A claim as the kubelet names it (DRAPlugin API, message Claim). Unprepare knows nothing else of the claim.

    namespace: the claim's namespace.
    name: the claim's name.
    uid: the claim's UID, which distinguishes it from an earlier claim of the same name.
    """

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name} ({self.uid})"


class Deadline:
    """How long the kubelet waits for a call, and whether it still waits.

    The kubelet waits 45 s for one call with all claims of a pod, then it calls again. Long work should check the
    deadline from time to time, so that the next call need not wait for it.

    remaining: returns the seconds that are left, None without a limit; the call's gRPC context knows.
    is_active: returns whether the caller still waits: it has neither cancelled the call nor gone away.
    """

    __slots__ = ("_is_active", "_remaining")

    def __init__(
        self, remaining: Callable[[], float | None] = lambda: None, is_active: Callable[[], bool] = lambda: True
    ) -> None:
        self._remaining = remaining
        self._is_active = is_active

    def remaining(self) -> float:
        """Return the seconds that are left: 0 once the deadline has passed, infinity without a limit."""
        left = self._remaining()
        return inf if left is None else max(0.0, left)

    @property
    def is_over(self) -> bool:
        """Whether the caller has stopped waiting: the deadline has passed, or the call was cancelled."""
        return not self._is_active() or self.remaining() <= 0

    def check(self) -> None:
        """Raise RetriableError if the caller has stopped waiting."""
        if self.is_over:
            raise RetriableError("the kubelet no longer waits for this call")


NO_DEADLINE: Final = Deadline()
"""For calls without a limit, as tests make them."""


def base_request(request: str) -> str:
    """Return the name of a request without `/subrequest`, the chosen alternative of `firstAvailable`."""
    return request.partition("/")[0]


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """A device of a claim.

    request: the request as allocated, `request/subrequest` where alternatives were asked for.
    pool: the name of the device's pool.
    name: the device's name in its pool.
    """

    request: str
    pool: str
    name: str

    @property
    def base_request(self) -> str:
        """The request's name in the claim, without `/subrequest`."""
        return base_request(self.request)


@dataclass(frozen=True, slots=True)
class PreparedDevice(ClaimedDevice):
    """One device, set up. `AllocatedDevice.prepared` makes it.

    request: the request as allocated.
    pool: the name of the device's pool.
    name: the device's name in its pool.
    share_id: which share of the device it is, None for the whole device.
    edits: what changes in exactly the containers that use the device's request.
    data: a JSON object that is remembered with the claim until it is unprepared, for the driver's own use.
    cdi_name: overrides the name of the CDI device: letters, digits and `_.:-`, the first and last a letter or digit.
        Devices of one claim may share a name if their edits are equal; devices of two claims may not.
    status: written into the claim's `status.devices` soon afterwards (KEP-4817).
    metadata: attributes that are added to the file which containers can read (see `DriverInfo.metadata`, KEP-5304).
    cdi_devices: qualified names, `vendor.com/class=name`, of CDI devices that the container gets as well. Their specs
        belong to somebody else, such as a vendor's toolkit; the SDK neither reads nor writes them.
    """

    share_id: str | None = None
    edits: ContainerEdits = field(default_factory=ContainerEdits)
    data: Mapping[str, Any] = field(default_factory=dict)
    cdi_name: str | None = None
    status: DeviceStatus | None = None
    metadata: Mapping[str, AttributeValue] = field(default_factory=dict)
    cdi_devices: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ClaimConfig:
    """An entry of configuration for this driver in a claim's allocation, whether or not it applies to a device.

    label: names the entry in messages: `config[0] of the claim for requests small, large`.
    requests: the requests that it names, `request` or `request/subrequest`. Empty: all requests.
    kind: the kind of its configuration class.
    """

    label: str
    requests: Sequence[str]
    kind: str


@dataclass(frozen=True)  # without slots: Python 3.11 refuses `AllocatedDevice[…](…)` of a frozen class with slots
class AllocatedDevice(ClaimedDevice, Generic[ConfigT]):
    """One device that the scheduler allocated to a claim.

    request: the request as allocated, `request/subrequest` where alternatives were asked for.
    pool: the name of the device's pool.
    name: the device's name in its pool.
    config: the configuration that applies: the last entry for this request, where entries of the claim come after those
        of its DeviceClass. Without entries, the default of the driver's first configuration class.
    configs: all entries that apply, in that order.
    device: what the driver published. A claim with a device that is not published is refused before the hook runs.
        None only if a test leaves it out.
    share_id: which share of the device it is (KEP-5075), None for the whole device.
    admin_access: whether the claim has admin access, so that another claim may hold the device too (KEP-5018).
    consumed_capacity: how much of each capacity the share consumes.
    """

    config: ConfigT
    configs: Sequence[ConfigT] = ()
    device: Device | None = None
    share_id: str | None = None
    admin_access: bool = False
    consumed_capacity: Mapping[str, Quantity] = field(default_factory=dict)

    def config_of(self, wanted: type[WantedT]) -> WantedT | None:
        """Return the configuration of one class that applies: the last of its entries in `configs`; None without one.

        A driver with several configuration classes finds by it the one that fits the device.
        """
        return next((config for config in reversed(self.configs) if isinstance(config, wanted)), None)

    @property
    def hardware(self) -> Any:
        """The driver's own object that the latest discovery attached to the device (`Device.hardware`).

        None only if that discovery attached none. After a restart, a prepare waits for the first discovery: the claim
        fails with RetriableError after 30 s. If the device has gone, the claim fails with ClaimError before the hook
        runs. The hardware may have changed since the discovery, so check what may change before you use it.
        `dra_unprepare` must work without the device; record in the journal or in `data` what it needs.
        """
        return None if self.device is None else self.device.hardware

    def prepared(
        self,
        edits: ContainerEdits | None = None,
        *,
        data: Mapping[str, Any] | None = None,
        cdi_name: str | None = None,
        status: DeviceStatus | None = None,
        metadata: Mapping[str, AttributeValue] | None = None,
        cdi_devices: Sequence[str] = (),
    ) -> PreparedDevice:
        """Return the value to yield from `dra_prepare` once this device is set up. Arguments: see PreparedDevice."""
        return PreparedDevice(
            self.request,
            self.pool,
            self.name,
            self.share_id,
            ContainerEdits() if edits is None else edits,
            data or {},
            cdi_name,
            status,
            metadata or {},
            cdi_devices,
        )


@dataclass(frozen=True, slots=True)
class HeldDevice(ClaimedDevice):
    """What is remembered of one device of a claim until the claim is unprepared.

    It is read from disk and has no `hardware`: the device may have gone, and the driver may have been restarted.

    request: the request as allocated, `request/subrequest` where alternatives were asked for.
    pool: the name of the device's pool.
    name: the device's name in its pool.
    share_id: which share of the device it is (KEP-5075), None for the whole device.
    admin_access: whether the claim has admin access, so that another claim may hold the device too (KEP-5018).
    consumed_capacity: how much of each capacity the share consumes.
    data: the `data` of the prepared device; empty before that.
    cdi_ids: the qualified CDI device names in the answer to the kubelet, `vendor/class=name`.
    env_lists: what it adds to variables that the devices of a container fill together (`ContainerEdits.env_lists`).
    consumes: the counters that the device takes (`Device.consumes`), by counter set and counter.
    """

    share_id: str | None = None
    admin_access: bool = False
    consumed_capacity: Mapping[str, Quantity] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    cdi_ids: tuple[str, ...] = ()
    env_lists: Mapping[str, EnvList] = field(default_factory=dict)
    consumes: Mapping[str, Mapping[str, Quantity]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeldClaim(ClaimRef):
    """A claim that holds devices of this driver on this node, read from its state file.

    namespace: the claim's namespace.
    name: the claim's name.
    uid: the claim's UID.
    devices: its devices of this driver, in allocation order.
    journal: what `Claim.journal` recorded, oldest first.
    complete: False if its preparation has begun but not ended, because the process was killed or because an earlier
        attempt to undo it failed half-way.
    rebooted: True if the node was rebooted since it was prepared.
    deadline: how long the kubelet waits for `dra_unprepare`.
    pods: the UIDs of the pods that use it: those that it was reserved for when that was last read
        (`status.reservedFor`), and those of its PodGroup that have come since.
    damaged: True if its state file cannot be read: it holds its devices, of which only those are known that the file
        still names, without `data`. If not even its name is known, `namespace` and `name` are empty.
    variables: the environment that its CDI spec gives to containers; only of a claim that is not `complete`.
    undo: in `dra_unprepare`, what became of the steps so far.
    """

    devices: Sequence[HeldDevice] = ()
    journal: Sequence[Mapping[str, Any]] = ()
    complete: bool = True
    rebooted: bool = False
    deadline: Deadline = field(repr=False, compare=False, default=NO_DEADLINE)
    pods: Sequence[str] = ()
    damaged: bool = False
    variables: Mapping[str, str] = field(repr=False, default_factory=dict)
    undo: Undo = field(repr=False, compare=False, default=AT_ONCE)

    def undoing(self, step: str, *, harmless: bool = False) -> AbstractContextManager[None]:
        """Return a context for one step of `dra_unprepare`, so that its failure does not keep others from being tried.

        An exception in the context ends the step, not the hook. By default it is dangerous: the claim stays held, and
        the kubelet calls again. With `harmless` it is a warning: the device itself is back, and only a setting is not
        as before. NotNeededError means that nothing is left to undo. A step within another is for what makes sense only
        once the outer one has come so far.

        step: what is brought back, such as `power of GPU 3`; the same at each attempt, since an operator may skip it.
        """
        return self.undo.step(step, self, harmless=harmless)


@dataclass(frozen=True)  # without slots: Python 3.11 refuses `Claim[…](…)` of a frozen class with slots
class Claim(ClaimRef, Generic[ConfigT]):
    """An allocated claim, the argument of `dra_prepare`.

    namespace: the claim's namespace.
    name: the claim's name.
    uid: the claim's UID.
    node: the node that the driver runs on.
    devices: this driver's devices, in allocation order.
    raw: the ResourceClaim as the API server returned it.
    held: returns the other claims that hold devices of this driver on this node, so that a driver needs no memory of
        its own.
    journal: records a JSON object on disk. Call it before a change whose undo needs a value that the change destroys.
        HookError in a driver without `dra_unprepare`, after the hook has ended, or if the value is not JSON.
    deadline: how long the kubelet waits for the hook.
    configs: all entries of configuration for this driver, those of DeviceClasses first, also those that apply to no
        device. A driver with several kinds can tell a user which entry has no effect.
    reserve: records a JSON object in the journal that needs no undo: what the claim will take. From then on `held` has
        it for other claims, also for those of another process. HookError after the hook has ended, or if not JSON.
    """

    node: Node
    devices: Sequence[AllocatedDevice[ConfigT]]
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)
    held: Callable[[], Sequence[HeldClaim]] = field(repr=False, default=tuple)
    journal: Callable[[Mapping[str, Any]], None] = field(repr=False, default=lambda _entry: None)
    deadline: Deadline = field(repr=False, compare=False, default=NO_DEADLINE)
    configs: Sequence[ClaimConfig] = ()
    reserve: Callable[[Mapping[str, Any]], None] = field(repr=False, default=lambda _entry: None)
