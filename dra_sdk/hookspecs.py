"""The contract between dra_sdk and a driver: every hook, when it is called, what it may do, what a raise means.

A driver is a class with no-argument constructor; its methods named `dra_*` are its hooks. Only `dra_driver_info`,
`dra_discover` and `dra_prepare` are required, so a hook added later breaks no driver. Hooks are ordinary blocking
functions (`async def` is refused). They may be called from several threads at once: never twice for one claim, never
for two claims that share a device, otherwise in parallel.

An extension may wrap hooks (`@hookimpl(wrapper=True)`). Where a hook is a generator its wrapper gets the generator
before it has run: whoever wants to see the devices, or how long they took, returns a generator around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Event
from typing import Any, Protocol

import pluggy

from dra_sdk.model.claim import Claim, HeldClaim, PreparedDevice
from dra_sdk.model.device import Device, ResourcePool
from dra_sdk.model.driver import DriverInfo, Node
from dra_sdk.model.status import DeviceHealth

PROJECT = "dra_sdk"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

REQUIRED = ("dra_driver_info", "dra_discover", "dra_prepare")
WITHOUT_ANSWER = ("dra_unprepare", "dra_watch")


class DriverHooks(Protocol):
    """The hooks. Arguments may be left out of an implementation, but not renamed."""

    @hookspec(firstresult=True)
    def dra_driver_info(self) -> DriverInfo:
        """Say who the driver is. Called once, right after loading, before anything on the node is touched.

        Must be quick and have no effect. A raise ends the process with a message that names the driver.
        """

    @hookspec(firstresult=True)
    def dra_discover(self, node: Node) -> Iterable[Device] | Iterable[ResourcePool]:
        """List what the node has: devices (one pool named after the node), or whole pools.

        Called at the start and whenever `dra_watch` reports a change; must be repeatable and give a stable order,
        because the scheduler tries devices in that order. A raise keeps what was published before, is logged, and
        the call is repeated with back-off.
        """

    @hookspec(firstresult=True)
    def dra_prepare(self, claim: Claim[Any]) -> Iterable[PreparedDevice]:
        """Set up every device of `claim.devices` and yield one `device.prepared(...)` for each.

        The kubelet waits 45 s. If a later device fails, `dra_unprepare` is called for what was begun, so write it as a
        generator that yields each device as soon as it is ready. A raise becomes the claim's error in the pod's
        events; `PermanentError` says that retrying is useless. Once it returned, the same claim is answered from its
        state file and the hook is not called again until the claim was unprepared or the node rebooted. After a
        crash half-way `dra_unprepare` runs first, then this hook again.
        """

    @hookspec(firstresult=True)
    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        """Undo `dra_prepare`, with what was remembered; the claim may no longer exist in the API.

        Must be repeatable, and must cope with a claim that was prepared only in part (`claim.complete` is False:
        devices without `data` may or may not have been touched). A raise keeps the devices held; the kubelet
        calls again until it succeeds.
        """

    @hookspec(firstresult=True)
    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Wait for hardware to come or go and call `changed()`; return when `stop` is set.

        Runs in a thread of its own. A raise is logged and the hook is started again with back-off.
        """

    @hookspec(firstresult=True)
    def dra_device_health(self, node: Node, stop: Event) -> Iterable[list[DeviceHealth]]:
        """Yield the state of devices whenever one changes and at least every few seconds; end when `stop` is set.

        Runs in a thread of its own while the driver runs. Each list may cover some devices only; a device that is not
        mentioned for its `timeout` becomes Unknown. A raise is logged and the hook is started again with back-off.
        """
