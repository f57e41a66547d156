"""The contract between dra_sdk and a driver: each hook, when it is called, what it may do, what an exception means.

A driver is a class whose constructor needs no arguments; its methods named `dra_*` are its hooks. If it has settings,
its attribute `settings_class` names their class, and its constructor takes one argument, `settings`. Only
`dra_driver_info`, `dra_discover` and `dra_prepare` are required, so a hook that is added later breaks no driver. Hooks
are ordinary blocking functions (`async def` is refused). They run in several threads at the same time, but never twice
for one claim, and never for two claims that share a device.

An extension may wrap hooks (`@hookimpl(wrapper=True)`). The wrapper of a generator hook gets the generator before it
runs; to see the devices, or how long they take, it returns a generator around it. `ExtensionHooks` has what only
extensions may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Event
from typing import Any, Protocol

import pluggy

from dra_sdk.errors import PermanentError, RetriableError
from dra_sdk.model.claim import Claim, HeldClaim, PreparedDevice
from dra_sdk.model.container import Container, ContainerAdjustment, ContainerResources, PodSandbox
from dra_sdk.model.device import Device, ResourcePool
from dra_sdk.model.driver import DriverInfo, Node
from dra_sdk.model.metric import Gauge
from dra_sdk.model.status import DeviceHealth
from dra_sdk.model.step import Step

PROJECT = "dra_sdk"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a method of an extension as a hook; with `wrapper=True` it runs around the hooks of every driver."""

REQUIRED = ("dra_driver_info", "dra_discover", "dra_prepare")
WITHOUT_ANSWER = ("dra_unprepare", "dra_watch", "dra_run_pod_sandbox", "dra_stop_pod_sandbox", "dra_remove_container")
OF_CONTAINERS = (
    "dra_run_pod_sandbox",
    "dra_stop_pod_sandbox",
    "dra_create_container",
    "dra_synchronize",
    "dra_remove_container",
)
"""The hooks for which the driver is a plugin of the container runtime (NRI)."""


class DriverHooks(Protocol):
    """The hooks. An implementation may omit arguments, but not rename them."""

    @hookspec(firstresult=True)
    def dra_driver_info(self) -> DriverInfo:
        """Describe the driver. Called once, right after it is loaded, before anything on the node is touched.

        Must be quick and have no effect. An exception ends the process with a message that names the driver.
        """

    @hookspec(firstresult=True)
    def dra_discover(self, node: Node) -> Iterable[Device] | Iterable[ResourcePool]:
        """Return the node's devices (they become one pool, named after the node), or its pools.

        Called at the start and whenever `dra_watch` reports a change. Must be repeatable and give a stable order,
        because the scheduler tries devices in that order. An exception is logged, what is published stays, and the
        call is repeated with back-off.
        """

    @hookspec(firstresult=True)
    def dra_prepare(self, claim: Claim[Any]) -> Iterable[PreparedDevice]:
        """Set up every device of `claim.devices` and yield one `device.prepared(...)` for each.

        Write it as a generator that yields each device as soon as it is ready: if a later device fails,
        `dra_unprepare` is called for those that were started. The kubelet waits 45 s; `claim.deadline.remaining()` is
        the rest, and `claim.deadline.check()` raises if the kubelet no longer waits. An exception becomes the claim's
        error in the pod's events; `PermanentError` says that a retry is useless. After the hook has returned, the
        claim is answered from its state file, and the hook is not called again until the claim was unprepared or the
        node rebooted. After a crash in the middle `dra_unprepare` runs first, then this hook again.
        """

    @hookspec(firstresult=True)
    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        """Undo `dra_prepare` from the recorded data. The claim may no longer exist in the API.

        Must be repeatable, and must work for a claim that was prepared in part: then `claim.complete` is False, and
        devices without `data` may or may not have been touched. `with claim.undoing("…")` makes a step of what it
        brings back: all steps are tried, and only one that is refused and not `harmless` holds the claim. After that,
        or an exception outside of steps, the devices stay held; the kubelet calls again until it succeeds.
        """

    @hookspec(firstresult=True)
    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Call `changed()` whenever devices come, go or change; return when `stop` is set.

        Call it once at the beginning too, as soon as later changes are noticed: discovery then runs once more, so a
        change since the first discovery is not lost. For a hook that does not, discovery runs once more 5 s after
        its start. `dra_sdk.hardware.polling.watch` and `dra_sdk.hardware.uevents.watch` do all this. Runs in its own
        thread. An exception is logged, and the hook is started again with back-off.
        """

    @hookspec(firstresult=True)
    def dra_device_health(self, node: Node, stop: Event) -> Iterable[list[DeviceHealth]]:
        """Yield the health of devices when it changes, and at least every few seconds; end when `stop` is set.

        Runs in its own thread. A list may cover some of the devices; a device that no list mentions for its `timeout`
        becomes Unknown. An exception is logged, and the hook is started again with back-off.
        """

    @hookspec(firstresult=True)
    def dra_run_pod_sandbox(self, pod: PodSandbox, node: Node) -> None:
        """Act when the sandbox of a pod that uses this driver's claims has started, before its containers are created.

        Must be repeatable. An exception, or an answer that is late, does not fail the sandbox, which runtimes do not
        always remove then. It refuses the containers of the pod: the hook is called again before each of them is
        created, until it succeeds. So it is also called for a sandbox that started while the driver was away, again
        after a restart of the driver, when the pod may have all, and for a pod that begins to use a claim which is
        prepared for another pod. Calls for one sandbox do not overlap.

        Must be quick: the runtime waits 2 s, and handles no other pod of the node until then. The same holds for all
        hooks about containers: they answer from memory, after 1 s the SDK answers in their place.
        """

    @hookspec(firstresult=True)
    def dra_stop_pod_sandbox(self, pod: PodSandbox, node: Node) -> None:
        """Act when such a sandbox stops. Must be repeatable. An exception is logged, the sandbox stops anyway.

        Do not depend on it: a runtime calls it neither for pods of before its own restart, nor while the driver is
        away. `dra_unprepare` comes after it in any case.
        """

    @hookspec(firstresult=True)
    def dra_create_container(
        self, container: Container, held: Sequence[HeldClaim], node: Node
    ) -> ContainerAdjustment | None:
        """Return what changes in a container that is being created, with or without claims of this driver.

        `held` are all claims that hold devices of this driver on this node. Resources that the answer leaves out are
        those that `dra_synchronize` wants. PermanentError and RetriableError refuse the container. Any other exception
        does so if it uses claims of this driver; otherwise it is logged, and the container starts unchanged. A
        container that uses a claim of this driver which is not prepared is refused without a call.
        """

    @hookspec(firstresult=True)
    def dra_synchronize(
        self, containers: Sequence[Container], held: Sequence[HeldClaim], node: Node
    ) -> Mapping[str, ContainerResources | PermanentError | RetriableError]:
        """Return the resources that containers must have now, by container id; the SDK changes those that differ.

        Called with all containers of the node when the runtime connects, while a container is created (which is among
        them) or updated, when one has stopped, after claims were prepared or unprepared, and after each discovery. The
        claims of containers are among `held`. Must depend on nothing but its arguments and the node's hardware, so that
        a restart of the driver, the kubelet or the runtime leads to the same resources.

        Containers that it leaves out stay as they are. One that cannot have what it needs has a PermanentError or
        RetriableError in place of resources: it is refused if it is being created, else it stays as it is. An exception
        is logged, and the call is repeated; it fails the creation of a container that uses claims of this driver.
        """

    @hookspec(firstresult=True)
    def dra_remove_container(self, container: Container, node: Node) -> None:
        """Act when a container was removed. Must be repeatable. An exception is logged."""

    @hookspec(firstresult=True)
    def dra_top(self, node: Node, held: Sequence[HeldClaim]) -> Iterable[str]:
        """Yield the lines that `dra-sdk NAME top` prints: which claim uses what of the node's hardware, as a picture.

        Called by that command in a process of its own, beside the running driver, with the claims of its state files.
        Must change nothing. The page of `dra-sdk simulate --driver NAME --picture` has the lines too: then the claims
        are only planned, so their devices have no `data`.
        """

    @hookspec(firstresult=True)
    def dra_metrics(self, node: Node, held: Sequence[HeldClaim]) -> Iterable[Gauge]:
        """Return values of the driver's own for `/metrics`, such as what claims have and what is left of the hardware.

        Called whenever `/metrics` is read, with all claims that hold devices of this driver on this node. Must be quick
        and change nothing. After an exception the driver's own values are left out, and the exception is logged.
        """


class ExtensionHooks(Protocol):
    """Hooks of extensions alone, which observe what the SDK does around the driver's hooks."""

    @hookspec
    def dra_step(self, step: Step) -> AbstractContextManager[object] | None:
        """Return a context manager that is entered before a step and left after it, with its exception if it fails.

        None if the extension does not care about the step. Called in the thread of the step, for every call of the
        kubelet, so it must be quick. What it raises fails the call.
        """
