"""A driver as an NRI plugin: calls its hooks about pods and containers, and applies what `dra_synchronize` wants.

What `dra_synchronize` wants is applied in the answer to an event where there is one. Outside of events, as after a
claim was unprepared, a thread asks the runtime (UpdateContainers, since NRI 0.12.1) or writes the containers' cgroups.

No lock is held while a hook runs, so that a slow hook delays no other event. So two calls of `dra_synchronize` may
overlap, one in an event and one outside, and the answer of the earlier one may be applied last. Each side counts the
changes of the other; if there were any during its own, `dra_synchronize` runs once more.

An error of a hook about a container refuses a container that uses claims of the driver; for others it is logged, unless
the hook refuses them by PermanentError or RetriableError. An error of `dra_run_pod_sandbox` refuses all containers of
the pod (`sandboxes.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Condition, Event
from typing import Any, Final

from google.protobuf.message import Message

from dra_sdk.errors import DraError, HardwareError, NriError, PermanentError, RetriableError
from dra_sdk.hardware.container_cgroup import ContainerCgroup
from dra_sdk.loader import Driver
from dra_sdk.model.claim import HeldClaim
from dra_sdk.model.container import Container, ContainerAdjustment, ContainerResources, PodSandbox, Report
from dra_sdk.model.driver import Node
from dra_sdk.node.nri.containers import ContainerTable, adjustment_of, resources_of, update_of
from dra_sdk.node.nri.events import SAFE_UPDATES, RuntimeInfo
from dra_sdk.node.nri.events import Event as NriEvent
from dra_sdk.node.nri.plugin import SOCKET, Launch, NriPlugin
from dra_sdk.node.nri.reports import Reports
from dra_sdk.node.nri.sandboxes import Sandboxes
from dra_sdk.node.nri.session import FailurePolicy, Response, SessionLimits, StartRefusedError, Subscription
from dra_sdk.node.threads import RestartingThread
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

log = logging.getLogger(__name__)
INDEX: Final = 50
"""The default index: runtimes call plugins in the order of their indices."""
UPDATE_SECONDS: Final = 10.0  # for an answer to UpdateContainers
_PAUSE: Final = 0.01
"""Seconds before changes outside of events: the kubelet has its answer first, and several claims are one change."""
Updates = dict[str, ContainerResources]
"""Resources to change, by container id."""
Measure = Callable[[str], AbstractContextManager[None]]


class DriverPlugin:
    """Connects a driver to the container runtime and stays connected.

    driver: a driver with hooks about containers.
    node: the node.
    held: returns all claims that hold devices of the driver; must be quick.
    index: 0 to 99; runtimes call plugins in this order. SettingsError for another one.
    path: the runtime's socket.
    limits: how long a connection may take to begin.
    launch: how the runtime started this process, if it did: with that connection, name and index.
    ended: called when the connection of `launch` has ended, but not by `stop`.
    measure: returns a context manager for the handling of an event, by its name.
    report: takes the statuses of devices that hooks report (`PodSandbox.report`), after the event was answered.
    """

    def __init__(
        self,
        driver: Driver,
        node: Node,
        held: Callable[[], Sequence[HeldClaim]],
        *,
        index: int = INDEX,
        path: Path = SOCKET,
        limits: SessionLimits | None = None,
        launch: Launch | None = None,
        ended: Callable[[], None] = lambda: None,
        measure: Measure = lambda _event: nullcontext(),
        report: Report = lambda _claim, _device, _status: None,
    ) -> None:
        self._driver, self._node, self._held, self._measure = driver, node, held, measure
        self._synchronizes = driver.implements("dra_synchronize")
        self._sandboxes = Sandboxes(driver, node)
        self._reports = Reports(report)
        self._table = ContainerTable(driver.info.name, self._reports.add)
        self._changed = Condition()  # guards the table and what follows
        self._requested = False
        self._applying = False
        self._events = 0  # events that have begun or were answered
        self._others = 0  # changes outside of events: of claims, or of containers by us
        self._failed_updates = 0
        self._not_started: set[str] = set()  # containers that had no cgroup when it was to be written
        self._plugin = NriPlugin(
            driver.info.name,
            index,
            self._synchronize,
            self._subscriptions(),
            path=path,
            limits=limits,
            launch=launch,
            ended=ended,
        )
        self._thread = RestartingThread(f"NRI updates of {driver.info.name}", self._update)

    @property
    def runtime(self) -> RuntimeInfo | None:
        """The runtime, while the plugin is connected and synchronized; else None."""
        return self._plugin.runtime

    @property
    def connections(self) -> int:
        """How often the plugin has been synchronized."""
        return self._plugin.connections

    @property
    def failed_updates(self) -> int:
        """How often a container could not be changed outside of an event."""
        return self._failed_updates

    def start(self) -> None:
        """Start to connect. Returns at once."""
        self._plugin.start()
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Disconnect, and wait up to `timeout` seconds until all threads have ended. False if a hook still runs."""
        self._thread.request_stop()
        with self._changed:
            self._changed.notify_all()
        ended = self._plugin.stop(timeout)
        return self._thread.stop(timeout) and ended

    def wait_synchronized(self, timeout: float, connections: int = 1) -> bool:
        """Wait until the plugin is connected, and was synchronized at least so often. False after `timeout` seconds."""
        return self._plugin.wait_synchronized(timeout, connections)

    def synchronize_soon(self) -> None:
        """Claims or devices have changed: apply soon what `dra_synchronize` wants now. Returns at once."""
        with self._changed:
            self._others += 1
            self._request()

    def wait_applied(self, timeout: float) -> bool:
        """Wait until what `dra_synchronize` wants is applied. False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._requested and not self._applying, timeout)

    def wait_reported(self, timeout: float) -> bool:
        """Wait until what hooks have reported is sent. False after `timeout` seconds."""
        return self._reports.wait(timeout)

    def _subscriptions(self) -> dict[NriEvent, Subscription]:
        ignore = FailurePolicy.IGNORE
        found: dict[NriEvent, tuple[Callable[[Any], Message | Response | None], Any]] = {
            NriEvent.RUN_POD_SANDBOX: (self._run_pod, ignore),
            NriEvent.REMOVE_POD_SANDBOX: (self._remove_pod, ignore),
            NriEvent.CREATE_CONTAINER: (self._create, self._policy_of_creation),
            NriEvent.UPDATE_CONTAINER: (self._resize, self._policy),
            NriEvent.STOP_CONTAINER: (self._stop_container, ignore),
            NriEvent.REMOVE_CONTAINER: (self._remove, ignore),
        }
        if self._synchronizes:
            found[NriEvent.POST_START_CONTAINER] = (self._started, ignore)
        if self._driver.implements("dra_stop_pod_sandbox"):
            found[NriEvent.STOP_POD_SANDBOX] = (self._stop_pod, ignore)
        pairs = ((event, partial(self._handle, event, each), policy) for event, (each, policy) in found.items())
        return {event: Subscription(handle, policy) for event, handle, policy in pairs}

    def _handle(self, event: NriEvent, handler: Callable[[Any], Message | Response | None], request: Any) -> Response:
        with self._measure(event.call.method):
            return self._reports.after_answer(partial(handler, request), event.call.response)

    def _policy(self, request: Any) -> FailurePolicy:
        return FailurePolicy.FAIL if self._table.names_claim(request.container) else FailurePolicy.IGNORE

    def _policy_of_creation(self, request: pb.CreateContainerRequest) -> FailurePolicy:
        policy = self._policy(request)
        if policy is FailurePolicy.FAIL or self._sandboxes.is_ready(request.pod.id):
            return policy
        try:
            uses = any(request.pod.uid in each.pods for each in self._held())
        except DraError:  # which the handler meets, too
            return policy
        return FailurePolicy.FAIL if uses else policy

    # Pods

    def _run_pod(self, request: pb.PodSandboxEvent) -> None:
        with self._changed:
            self._table.add_pod(request.pod)
        self._sandboxes.ensure(self._pod(request.pod))

    def _stop_pod(self, request: pb.PodSandboxEvent) -> None:
        self._sandboxes.forget(request.pod.id)
        pod = self._pod(request.pod)
        if pod.claims:
            self._driver.stop_pod_sandbox(pod, self._node)

    def _pod(self, message: pb.PodSandbox) -> PodSandbox:
        held = self._held()
        with self._changed:
            return self._table.pod(message, held)

    def _remove_pod(self, request: pb.PodSandboxEvent) -> None:
        self._sandboxes.forget(request.pod.id)
        with self._changed:
            self._table.remove_pod(request.pod.id)

    # Containers

    def _synchronize(
        self, pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]
    ) -> list[pb.ContainerUpdate]:
        with self._measure("Synchronize"):
            self._begin()
            with self._changed:
                self._table.replace(pods, containers)
                self._not_started.clear()
            self._sandboxes.retain({each.id for each in pods})
            try:
                held = self._held()
                self._warn(pods, containers, held)
                updates = self._differences(self._wanted(held))
            except DraError as error:  # without a connection, containers would start without the driver
                log.error("%s; it is repeated", error)
                self._request_again()
                return []
            self._record(updates)
            return [update_of(name, resources) for name, resources in updates.items()]

    def _warn(
        self, pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container], held: Sequence[HeldClaim]
    ) -> None:
        """Log containers that were created while the driver was away, and would have been refused."""
        namespaces = {each.id: each.namespace for each in pods}
        for each in containers:
            try:
                self._table.check(each, namespaces.get(each.pod_sandbox_id, ""), held)
            except DraError as error:
                log.warning("%s; it was created without the driver", error)

    def _create(self, request: pb.CreateContainerRequest) -> Response:
        message = request.container
        known, others = resources_of(message.linux.resources), self._begin()
        with self._changed:
            self._table.add(request.pod, message)
        try:
            held = self._held()
            self._table.check(message, request.pod.namespace, held)
            with self._changed:
                container = self._table.container(request.pod, message, held)
            self._sandboxes.require(container.pod)
            adjustment = self._adjustment(container, held)
            wanted = self._wanted(held, message.id, known.changed(adjustment.resources))
        except BaseException as error:
            with self._changed:
                if isinstance(error, StartRefusedError) or self._table.names_claim(message):  # it is not created
                    self._table.remove(message.id, refused=True)
            self._request_again()
            raise
        own = wanted.pop(message.id, ContainerResources()).changed(adjustment.resources)
        updates = self._differences(wanted)
        answer = pb.CreateContainerResponse(
            adjust=adjustment_of(adjustment, known.different(own)),
            update=[update_of(name, resources) for name, resources in updates.items()],
        )
        return Response(answer, partial(self._sent, {**updates, message.id: own}, others))

    def _adjustment(self, container: Container, held: Sequence[HeldClaim]) -> ContainerAdjustment:
        try:
            return self._driver.create_container(container, held, self._node)
        except (PermanentError, RetriableError) as error:
            raise StartRefusedError(str(error)) from error

    def _resize(self, request: pb.UpdateContainerRequest) -> Response:
        """The kubelet changes a container's resources. The runtime would set again what it knows of the others."""
        name, asked = request.container.id, resources_of(request.linux_resources)
        others = self._begin()
        with self._changed:
            before = self._table.adjusted(name)
        try:
            held = self._held()
            wanted = self._wanted(held, name, asked)
        except DraError as error:
            if before == ContainerResources():
                raise
            log.error("%s: %s; it keeps what the driver wanted before", request.container.name, error)
            wanted = {}
            self._request_again()
        own = before.changed(wanted.pop(name, ContainerResources()))
        updates = self._differences(wanted)
        messages = [update_of(each, resources) for each, resources in updates.items()]
        if own != ContainerResources():
            messages.append(update_of(name, own, ignore_failure=False))
        with self._changed:
            self._table.update(name, asked, adjusted=False)
        return Response(
            pb.UpdateContainerResponse(update=messages), partial(self._sent, {**updates, name: own}, others)
        )

    def _stop_container(self, request: pb.StopContainerRequest) -> Response | None:
        others = self._begin()
        with self._changed:
            if not self._table.remove(request.container.id):
                return None
        try:
            updates = self._differences(self._wanted(self._held()))
        except BaseException:
            self._request_again()
            raise
        answer = pb.StopContainerResponse(update=[update_of(name, each) for name, each in updates.items()])
        return Response(answer, partial(self._sent, updates, others))

    def _remove(self, request: pb.ContainerEvent) -> None:
        held = self._held()
        with self._changed:
            if self._table.remove(request.container.id):  # it was not stopped before
                self._request()
            container = self._table.container(request.pod, request.container, held)
        self._driver.remove_container(container, self._node)

    def _started(self, request: pb.ContainerEvent) -> None:
        """A container has its cgroup now, and the runtime changes it when it is asked to."""
        name, stated = request.container.id, resources_of(request.container.linux.resources)
        with self._changed:
            if name in self._not_started or self._table.difference(name, stated):
                self._not_started.discard(name)
                self._table.update(name, stated, adjusted=False)
                self._request()

    # What dra_synchronize wants

    def _begin(self) -> int:
        """An event begins that may change containers: how many other changes there were before."""
        with self._changed:
            self._events += 1
            return self._others

    def _sent(self, updates: Mapping[str, ContainerResources], others: int, in_time: bool) -> None:
        """The runtime has applied the updates of an event, or not."""
        with self._changed:
            self._events += 1
            if in_time:
                self._record(updates)
            if not in_time or self._others != others:
                self._request()

    def _wanted(
        self, held: Sequence[HeldClaim], changing: str = "", resources: ContainerResources | None = None
    ) -> Updates:
        """What `dra_synchronize` wants; the container `changing` is about to have other resources."""
        if not self._synchronizes:
            return {}
        with self._changed:
            containers = self._table.containers(held)
        if resources is not None:
            containers = [_changed(each, resources) if each.id == changing else each for each in containers]
        return dict(self._driver.synchronize(containers, held, self._node))

    def _differences(self, wanted: Mapping[str, ContainerResources]) -> Updates:
        """Those of the wanted resources that containers do not have yet."""
        found = {}
        with self._changed:
            for name, resources in wanted.items():
                difference = self._table.difference(name, resources)
                if difference is not None:
                    found[name] = difference
        return found

    def _record(self, updates: Mapping[str, ContainerResources]) -> None:
        with self._changed:
            for name, resources in updates.items():
                self._table.update(name, resources, adjusted=True)

    def _request(self) -> None:
        self._requested = True
        self._changed.notify_all()

    def _request_again(self) -> None:
        with self._changed:
            self._request()

    def _update(self, stop: Event) -> None:
        """Apply what `dra_synchronize` wants, outside of events, whenever that is requested."""
        while not stop.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._requested or stop.is_set())
            if stop.wait(_PAUSE):
                return
            with self._changed:
                self._requested, self._applying = False, True
            try:
                self._apply()
            except BaseException:
                self._request_again()
                raise
            finally:
                with self._changed:
                    self._applying = False
                    self._changed.notify_all()
            self._thread.progressed()

    def _apply(self) -> None:
        runtime = self.runtime
        if runtime is None or not self._synchronizes:
            return  # Synchronize comes with the next connection
        with self._changed:
            events = self._events
        held = self._held()
        updates = self._differences(self._wanted(held))
        if not updates:
            return
        with self._changed:
            self._others += 1
        failed = self._send(runtime, updates)
        with self._changed:
            not_applied = failed.keys() | self._not_started
            self._record({name: each for name, each in updates.items() if name not in not_applied})
            if self._events != events:  # the answer to an event may have come first, or last
                for name in updates:
                    self._table.forget_resources(name)
                self._request()
        if failed:
            self._failed_updates += len(failed)
            raise NriError("; ".join(f"container {name}: {problem}" for name, problem in failed.items()))

    def _send(self, runtime: RuntimeInfo, updates: Updates) -> dict[str, str]:
        """Change containers; those that could not be changed, each with the reason."""
        if runtime.nri >= SAFE_UPDATES:
            messages = [update_of(name, each) for name, each in updates.items()]
            found = self._plugin.update_containers(messages, UPDATE_SECONDS)
            return {each.container_id: "the runtime could not update it" for each in found}
        with self._changed:
            cgroups = {name: self._table.cgroup(name) for name in updates}
        failed = {}
        for name, resources in updates.items():
            try:
                if not (cgroups[name] and ContainerCgroup(self._node, cgroups[name]).write(resources)):
                    with self._changed:
                        self._not_started.add(name)
            except HardwareError as error:
                failed[name] = str(error)
        return failed


def _changed(container: Container, resources: ContainerResources) -> Container:
    return replace(container, resources=container.resources.changed(resources))
