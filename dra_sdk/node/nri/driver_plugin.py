"""A driver as an NRI plugin: calls its hooks at events about pods and containers.

An error of a hook about a container refuses a container that uses claims of the driver; for others it is logged, unless
the hook refuses them by PermanentError or RetriableError. An error of `dra_run_pod_sandbox` refuses all containers of
the pod (`sandboxes.py`). What `dra_synchronize` wants is applied in the answer to an event where there is one, else by
`container_updates.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from google.protobuf.message import Message

from dra_sdk.errors import DraError, PermanentError, RetriableError
from dra_sdk.loader import Driver
from dra_sdk.model.claim import HeldClaim
from dra_sdk.model.container import Container, ContainerAdjustment, ContainerResources, Report
from dra_sdk.model.driver import Node
from dra_sdk.model.undo import AT_ONCE, Undo
from dra_sdk.node.nri.container_updates import ContainerUpdates
from dra_sdk.node.nri.containers import Admit, ContainerSnapshot, ContainerTable, DamagedClaimError, admit_none
from dra_sdk.node.nri.env_lists import joined_variables
from dra_sdk.node.nri.events import Event, EventCall
from dra_sdk.node.nri.messages import adjustment_of, resources_of, updates_of
from dra_sdk.node.nri.plugin import ConnectOptions, NriPlugin
from dra_sdk.node.nri.reports import Reports
from dra_sdk.node.nri.sandboxes import Sandboxes
from dra_sdk.node.nri.session import EventResponse, FailurePolicy, StartRefusedError, Subscription
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

log = logging.getLogger(__name__)
Measure = Callable[[str], AbstractContextManager[None]]
Handler = Callable[[Any], Message | EventResponse | None]


class DriverPlugin:
    """Connects a driver to the container runtime and stays connected.

    driver: a driver with hooks about containers.
    node: the node.
    held: returns all claims that hold devices of the driver; must be quick.
    options: how it connects; SettingsError for an index that is not allowed.
    measure: returns a context manager for the handling of an event, by its name.
    report: takes the statuses of devices that hooks report (`PodSandbox.report`), after the event was answered.
    undo: what the claims of a pod that stops are undone with, see `HeldClaim.undo`.
    admit: decides whether a pod that is not among a claim's pods uses it.

    connection: the connection to the runtime.
    updates: what `dra_synchronize` wants.
    reports: what hooks have reported and is not sent yet.
    """

    def __init__(
        self,
        driver: Driver,
        node: Node,
        held: Callable[[], Sequence[HeldClaim]],
        options: ConnectOptions,
        *,
        measure: Measure = lambda _event: nullcontext(),
        report: Report = lambda _claim, _device, _status: None,
        undo: Undo = AT_ONCE,
        admit: Admit = admit_none,
    ) -> None:
        self._driver, self._node, self._measure, self._undo = driver, node, measure, undo
        self._synchronizes = driver.implements("dra_synchronize")
        self.reports = Reports(report)
        self._table = ContainerTable(driver.info.name, held, self.reports.add, admit)
        self._sandboxes = Sandboxes(driver, node)
        self.connection = NriPlugin(driver.info.name, self._synchronize, self._subscriptions(), options)
        self.updates = ContainerUpdates(driver, node, self._table, self.connection)

    def start(self) -> None:
        """Start to connect. Return at once."""
        self.connection.start()
        self.updates.start()

    def stop(self, timeout: float) -> bool:
        """Disconnect, and wait up to `timeout` seconds until all threads have ended. False if a hook still runs."""
        self.updates.request_stop()
        ended = self.connection.stop(timeout)
        return self.updates.stop(timeout) and ended

    def _subscriptions(self) -> dict[Event, Subscription]:
        ignore = FailurePolicy.IGNORE
        handlers: dict[Event, tuple[Handler, Any]] = {
            Event.RUN_POD_SANDBOX: (self._run_pod, ignore),
            Event.REMOVE_POD_SANDBOX: (self._remove_pod, ignore),
            Event.CREATE_CONTAINER: (self._create, self._policy_of_creation),
            Event.UPDATE_CONTAINER: (self._resize, self._policy),
            Event.STOP_CONTAINER: (self._stop_container, ignore),
            Event.REMOVE_CONTAINER: (self._remove, ignore),
        }
        if self._synchronizes:
            handlers[Event.POST_START_CONTAINER] = (self._started, ignore)
        if self._driver.implements("dra_stop_pod_sandbox"):
            handlers[Event.STOP_POD_SANDBOX] = (self._stop_pod, ignore)
        return {
            event: Subscription(partial(self._handle, event.call, handler), policy)
            for event, (handler, policy) in handlers.items()
        }

    def _handle(self, call: EventCall, handler: Handler, request: Any) -> EventResponse:
        with self._measure(call.method):
            return self.reports.after_answer(partial(handler, request), call.response)

    def _policy(self, request: Any) -> FailurePolicy:
        return FailurePolicy.FAIL if self._table.names_claim(request.container) else FailurePolicy.IGNORE

    def _policy_of_creation(self, request: pb.CreateContainerRequest) -> FailurePolicy:
        policy = self._policy(request)
        if policy is FailurePolicy.FAIL or self._sandboxes.is_ready(request.pod.id):
            return policy
        try:
            return FailurePolicy.FAIL if self._table.is_reserved(request.pod.uid) else policy
        except DraError:  # which the handler meets, too
            return policy

    # -- pods

    def _run_pod(self, request: pb.PodSandboxEvent) -> None:
        self._table.add_pod(request.pod)
        if not self._sandboxes.is_ready(request.pod.id):
            self._table.admit_pod(request.pod)
        self._sandboxes.ensure(self._table.pod(request.pod))

    def _stop_pod(self, request: pb.PodSandboxEvent) -> None:
        self._sandboxes.forget(request.pod.id)
        pod = self._table.pod(request.pod)
        if pod.claims:
            claims = tuple(replace(claim, undo=self._undo) for claim in pod.claims)
            self._driver.stop_pod_sandbox(replace(pod, claims=claims), self._node)

    def _remove_pod(self, request: pb.PodSandboxEvent) -> None:
        self._sandboxes.forget(request.pod.id)
        self._table.remove_pod(request.pod.id)

    # -- containers

    def _synchronize(
        self, pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]
    ) -> list[pb.ContainerUpdate]:
        with self._measure("Synchronize"):
            self.updates.begin(connected=True)
            self._table.replace(pods, containers)
            self.updates.request()  # which finds out who uses claims
            self._sandboxes.retain({pod.id for pod in pods})
            try:
                snapshot = self._table.snapshot()
                self._warn(snapshot)
                updates = self.updates.lacking(snapshot)
            except DraError as error:  # without a connection, containers would start without the driver
                log.error("%s; it is repeated", error)
                self.updates.request()
                return []
            self._table.record(updates)
            return updates_of(updates)

    def _warn(self, snapshot: ContainerSnapshot) -> None:
        """Log containers that were created while the driver was away, and would have been refused."""
        for name in snapshot.containers:
            try:
                self._table.check(name, snapshot)
            except DamagedClaimError as error:
                log.error("%s; until then it keeps the resources that it has", error)
            except DraError as error:
                log.warning("%s; it was created without the driver", error)

    def _create(self, request: pb.CreateContainerRequest) -> EventResponse:
        name, others = request.container.id, self.updates.begin()
        self._table.add(request.pod, request.container)
        try:
            snapshot = self._snapshot(name)
            container = self._table.check(name, snapshot)
            if self._table.admit(container):
                snapshot = self._snapshot(name)
                container = self._table.check(name, snapshot)
            self._sandboxes.require(container.pod)
            adjustment, joined = self._adjustment(container, snapshot.held), joined_variables(container)
            wanted = self.updates.wanted(snapshot.changed(name, adjustment.resources), created=name)
        except BaseException as error:
            if isinstance(error, StartRefusedError) or self._table.names_claim(request.container):
                self._table.remove(name, refused=True)  # it is not created
            self.updates.request()
            raise
        own = wanted.pop(name, ContainerResources())
        updates = self._table.differences(wanted)
        own = own.changed(adjustment.resources)
        lacking = container.resources.different(own)
        adjust = adjustment_of(adjustment, lacking, joined)
        answer = pb.CreateContainerResponse(update=updates_of(updates), adjust=adjust)
        return EventResponse(answer, partial(self.updates.answered, {**updates, name: own}, others))

    def _snapshot(self, container: str) -> ContainerSnapshot:
        """Return what is known at an event about a container; of the others only if a hook wants to know."""
        return self._table.snapshot("" if self._synchronizes else container)

    def _adjustment(self, container: Container, held: Sequence[HeldClaim]) -> ContainerAdjustment:
        try:
            return self._driver.create_container(container, held, self._node)
        except (PermanentError, RetriableError) as error:
            raise StartRefusedError(str(error)) from error

    def _resize(self, request: pb.UpdateContainerRequest) -> EventResponse:
        """Answer a change of a container's resources. The runtime would set again what it knows of the others."""
        name, asked = request.container.id, resources_of(request.linux_resources)
        others, before = self.updates.begin(), self._table.adjusted(name)
        try:
            wanted = self.updates.wanted(self._snapshot(name).changed(name, asked))
        except DraError as error:
            if before == ContainerResources():
                raise
            log.error("%s: %s; it keeps what the driver wanted before", request.container.name, error)
            wanted = {}
            self.updates.request()
        own = before.changed(wanted.pop(name, ContainerResources()))
        updates = self._table.differences(wanted)
        if own != ContainerResources():
            updates[name] = own
        self._table.update(name, asked)
        answer = pb.UpdateContainerResponse(update=updates_of(updates, required=name))
        return EventResponse(answer, partial(self.updates.answered, updates, others))

    def _stop_container(self, request: pb.StopContainerRequest) -> EventResponse | None:
        others = self.updates.begin()
        if not self._table.remove(request.container.id):
            return None
        try:
            updates = self.updates.lacking(self._snapshot(request.container.id))
        except BaseException:
            self.updates.request()
            raise
        answer = pb.StopContainerResponse(update=updates_of(updates))
        return EventResponse(answer, partial(self.updates.answered, updates, others))

    def _remove(self, request: pb.ContainerEvent) -> None:
        if self._table.remove(request.container.id):  # it was not stopped before
            self.updates.request()
        self._driver.remove_container(self._table.container(request.pod, request.container), self._node)

    def _started(self, request: pb.ContainerEvent) -> None:
        self.updates.started(request.container.id, resources_of(request.container.linux.resources))
