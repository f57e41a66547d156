"""What `dra_synchronize` wants for containers: asked for in an event, and outside of events applied by a thread.

The answer to an event carries what the hook wants then. Outside of events, as after a claim was unprepared, the thread
asks the runtime (UpdateContainers, since NRI 0.12.1) or writes the containers' cgroups.

No lock is held while the hook runs, so that a slow hook delays no other event. So two calls of it may overlap, one in
an event and one outside, and the answer of the earlier one may be applied last. Each side counts the changes of the
other; if there were any during its own, the hook runs once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Condition, Event
from typing import Final

from dra_sdk.errors import HardwareError, NriError, PermanentError, RetriableError
from dra_sdk.hardware.container_cgroup import ContainerCgroup
from dra_sdk.loader import Driver
from dra_sdk.model.container import ContainerResources
from dra_sdk.model.driver import Node
from dra_sdk.node.nri.containers import ContainerSnapshot, ContainerTable, Updates
from dra_sdk.node.nri.events import SAFE_UPDATES, RuntimeInfo
from dra_sdk.node.nri.messages import updates_of
from dra_sdk.node.nri.plugin import NriPlugin
from dra_sdk.node.nri.session import StartRefusedError
from dra_sdk.node.threads import RestartingThread

UPDATE_SECONDS: Final = 10.0  # for an answer to UpdateContainers
_PAUSE: Final = 0.01
"""Seconds before changes outside of events: the kubelet has its answer first, and several claims are one change."""


class ContainerUpdates:
    """Knows what `dra_synchronize` wants, and applies it outside of events.

    driver: the driver; without the hook, nothing is wanted.
    node: the node.
    table: the containers and their claims; events change it.
    plugin: the connection to the runtime.

    failed: how often a container could not be changed outside of an event.
    """

    def __init__(self, driver: Driver, node: Node, table: ContainerTable, plugin: NriPlugin) -> None:
        self._driver, self._node, self._table, self._plugin = driver, node, table, plugin
        self._has_hook = driver.implements("dra_synchronize")
        self._changed = Condition()  # guards what follows; may be held while the table is used, never the reverse
        self._requested = False
        self._applying = False
        self._events = 0  # events that have begun or were answered
        self._others = 0  # changes outside of events: of claims, or of containers by us
        self.failed = 0
        self._not_started: set[str] = set()  # containers that had no cgroup when it was to be written
        self._thread = RestartingThread(f"NRI updates of {driver.info.name}", self._run)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def request_stop(self) -> None:
        """Ask the thread to end. Return at once."""
        self._thread.request_stop()
        with self._changed:
            self._changed.notify_all()

    def stop(self, timeout: float) -> bool:
        """End the thread; False if the hook still runs in it after `timeout` seconds."""
        self.request_stop()
        return self._thread.stop(timeout)

    def request(self) -> None:
        """Have what the hook wants applied soon. Return at once."""
        with self._changed:
            self._requested = True
            self._changed.notify_all()

    def claims_changed(self) -> None:
        """Do the same because claims or devices have changed."""
        with self._changed:
            self._others += 1
            self.request()

    def wait_applied(self, timeout: float) -> bool:
        """Wait until what the hook wants is applied. False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._requested and not self._applying, timeout)

    # -- events

    def begin(self, *, connected: bool = False) -> int:
        """Begin an event that may change containers. Return how many other changes there were before.

        connected: whether a runtime has connected, and describes all containers.
        """
        with self._changed:
            self._events += 1
            if connected:
                self._not_started.clear()
            return self._others

    def wanted(self, snapshot: ContainerSnapshot, *, created: str = "") -> dict[str, ContainerResources]:
        """Return what the hook wants, by container id. StartRefusedError if it refuses the container `created`.

        A container whose claim has a damaged state file keeps what it has: the hook does not know what that should be.
        """
        if not self._has_hook:
            return {}
        answer = self._driver.synchronize(list(snapshot.containers.values()), snapshot.held, self._node)
        if isinstance(refusal := answer.get(created), PermanentError | RetriableError):
            raise StartRefusedError(str(refusal)) from refusal
        kept = {
            name for name, container in snapshot.containers.items() if any(claim.damaged for claim in container.claims)
        }
        return {
            name: wanted
            for name, wanted in answer.items()
            if isinstance(wanted, ContainerResources) and name not in kept
        }

    def lacking(self, snapshot: ContainerSnapshot) -> dict[str, ContainerResources]:
        """Return what containers do not have yet of what the hook wants."""
        return self._table.differences(self.wanted(snapshot))

    def answered(self, updates: Updates, others: int, in_time: bool) -> None:
        """End an event: the runtime has applied these updates, or not. `others` is what `begin` has returned."""
        with self._changed:
            self._events += 1
            if in_time:
                self._table.record(updates)
            if not in_time or self._others != others:
                self.request()

    def started(self, container: str, stated: ContainerResources) -> None:
        """Note that a container has its cgroup now, and the resources that the runtime states."""
        with self._changed:
            if container in self._not_started or self._table.differences({container: stated}):
                self._not_started.discard(container)
                self._table.update(container, stated)
                self.request()

    # -- outside of events

    def _run(self, stop: Event) -> None:
        """Apply what the hook wants whenever that is requested."""
        while not stop.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._requested or stop.is_set())
            if stop.wait(_PAUSE):
                return
            with self._changed:
                self._requested, self._applying = False, True
            try:
                self._apply()
                if self._table.admit_running():
                    self.request()
            except BaseException:
                self.request()
                raise
            finally:
                with self._changed:
                    self._applying = False
                    self._changed.notify_all()
            self._thread.progressed()

    def _apply(self) -> None:
        runtime = self._plugin.runtime
        if runtime is None or not self._has_hook:
            return  # Synchronize comes with the next connection
        with self._changed:
            events = self._events
        updates = self.lacking(self._table.snapshot())
        if not updates:
            return
        with self._changed:
            self._others += 1
        failed = self._send(runtime, updates)
        with self._changed:
            not_applied = failed.keys() | self._not_started
            self._table.record({name: wanted for name, wanted in updates.items() if name not in not_applied})
            if self._events != events:  # the answer to an event may have come first, or last
                self._table.forget_resources(updates)
                self.request()
        if failed:
            self.failed += len(failed)
            raise NriError("; ".join(f"container {name}: {problem}" for name, problem in failed.items()))

    def _send(self, runtime: RuntimeInfo, updates: Updates) -> Mapping[str, str]:
        """Change containers. Return the reason for each that could not be changed."""
        if runtime.nri >= SAFE_UPDATES:
            failed = self._plugin.update_containers(updates_of(updates), UPDATE_SECONDS)
            return {update.container_id: "the runtime could not update it" for update in failed}
        problems = {}
        for name, wanted in updates.items():
            cgroup = self._table.cgroup(name)
            try:
                if not (cgroup and ContainerCgroup(self._node, cgroup).write(wanted)):
                    with self._changed:
                        self._not_started.add(name)
            except HardwareError as error:
                problems[name] = str(error)
        return problems
