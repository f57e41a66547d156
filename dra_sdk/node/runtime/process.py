"""One driver as a running service: the order in which its parts start and stop.

```
start   data directory and its lock → state files → NRI → service socket → registration socket → discovery
        → slices, once the kubelet has registered the driver
stop    calls in flight → registration socket → service socket → NRI → discovery → slices → lock
```

Many state files are read beside all that follows (see `StateReading`).
NRI, the connection to the container runtime, exists only for drivers with hooks about pods and containers.

The kubelet may call as soon as the registration socket exists, so everything that a call needs starts before it.
Registration does not need the API server. ResourceSlices stay published when the process ends; the kubelet removes them
if no other process of the driver registers within 30 s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from dra_sdk.errors import RetriableError, SettingsError, UnreachableError
from dra_sdk.kube.client import KubeClient
from dra_sdk.loader import Driver
from dra_sdk.model.claim import ClaimRef, Deadline
from dra_sdk.model.driver import Node
from dra_sdk.node.files import Files, check_shared_directory, private_directory
from dra_sdk.node.health.unhealthy_store import UNHEALTHY_FILE, UnhealthyStore
from dra_sdk.node.kubelet.draplugin import VERSIONS, plugin_services
from dra_sdk.node.kubelet.registration import Registration
from dra_sdk.node.kubelet.sockets import SocketPaths, remove_dead, socket_paths
from dra_sdk.node.locks import NamedLocks
from dra_sdk.node.prepare.dependencies import Dependencies
from dra_sdk.node.prepare.engine import Preparer
from dra_sdk.node.runtime.claims_api import ApiConnection, ClaimStatusWriter
from dra_sdk.node.runtime.damaged_state import DamagedState
from dra_sdk.node.runtime.endpoints import HttpServer, Page, pages
from dra_sdk.node.runtime.events import EventWriter, NodeEvent, Reason, health_events, undo_events
from dra_sdk.node.runtime.instance import CLAIM_LOCKS, DATA_MODE, INSTANCE_LOCK, InstanceLock, read_boot_id
from dra_sdk.node.runtime.metrics import Metrics
from dra_sdk.node.runtime.publishing import Publisher
from dra_sdk.node.runtime.settings import Settings
from dra_sdk.node.runtime.sockets import Sockets
from dra_sdk.node.runtime.state_reading import StateReading
from dra_sdk.node.slices.writer import DroppedFieldsError
from dra_sdk.rpc.server import Method

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra_sdk.model.undo import UndoStep
    from dra_sdk.node.health.feed import HealthChange
    from dra_sdk.node.runtime.container_hooks import ContainerHooks
    from dra_sdk.node.slices.foreign import ForeignSlice

log = logging.getLogger(__name__)
_T = TypeVar("_T")
STOP_SECONDS: Final = 5.0  # that each service may take to stop
HANDOVER_SECONDS: Final = 30.0  # to wait for the former process to end; after that the kubelet has removed its slices


class DriverProcess:
    """Runs one driver on one node until `stop`; usable as a context manager. SettingsError for unusable settings.

    driver: the driver.
    settings: its settings.
    node: the node.
    data: its plugin data directory.
    paths: its sockets.
    metrics: what it measures of itself.
    publisher: keeps its slices published.
    preparer: prepares claims.
    registration: answers the kubelet's registration.
    lock: keeps other instances out of the data directory.
    containers: calls the driver's hooks about pods and containers; None if it has none.

    `serves` is called by `start` just before the sockets open: from then on a call may be in flight. `ended` is called
    with the reason when the process has nothing more to do and should be stopped.
    """

    def __init__(
        self,
        driver: Driver,
        settings: Settings,
        *,
        files: Files | None = None,
        serves: Callable[[], None] = lambda: None,
        ended: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        if not settings.registry.is_dir():
            raise SettingsError(
                f"{settings.registry} is not a directory; a kubelet makes it, so check --kubelet-dir "
                f"and the host path of the driver's pod"
            )
        name, shared = driver.info.name, bool(settings.pod_uid)
        self.metrics = Metrics(name)
        self.driver, self.settings = driver.measured(self.metrics.hook), settings
        self.node = Node(settings.node_name, settings.host_root, discover_again=self._discover_again, warn=self._warn)
        self.data = settings.plugin_data(name)
        private_directory(self.data, DATA_MODE)
        for place in (settings.registry, self.data.parent):
            check_shared_directory(place)
        self.paths = _paths(settings, name)
        self._files, self._serves, self._ended = files or Files(), serves, ended
        self.locks = NamedLocks(self.data / CLAIM_LOCKS if shared else None)
        self.lock = InstanceLock(self.data / INSTANCE_LOCK, shared=shared)
        self._boot_id = read_boot_id(settings.host_root)
        self._api = ApiConnection(self._connect)
        self._statuses = ClaimStatusWriter(name, self._api.get)
        self._events = EventWriter(name, self.node.name, self._api.get) if settings.events == "on" else None
        self.publisher = self._make_publisher()
        self._dependencies = self._make_dependencies()
        self.preparer = Preparer(self.driver, self.node, self._dependencies)
        self._reading = StateReading(self.preparer, self._state_is_read)
        self._damaged = DamagedState(name, self.preparer.unreadable, settings.taint_effect, self._state_files_changed)
        self.publisher.stages.append(self._damaged.apply)
        self.publisher.health.feed.subscribe(self._report_health)
        self.registration = Registration(name, self.paths.service, (*VERSIONS, *self.publisher.health.versions()))
        self.containers = self._make_container_hooks()
        if self.containers is not None:
            self.publisher.subscribe(self.containers.synchronize_soon)
        self._sockets = Sockets(self.paths, settings.serve, self._services(), self.registration)
        self._add_gauges()
        self._started = ExitStack()

    def _discover_again(self) -> None:
        self.publisher.discovery.request()

    def _warn(self, note: str) -> None:
        log.warning("%s", note)
        if self._events is not None:
            self._events.put(NodeEvent("DriverWarning", f"driver {self.driver.info.name}: {note}"))

    def start(self) -> None:
        """Start everything. If a step fails, everything that was started is stopped again."""
        with ExitStack() as stack:
            if self.settings.serve == "registration":
                self._listen(stack)  # claims and slices belong to the process that offers the service
            else:
                self._start(stack)
            self._started = stack.pop_all()

    def stop(self) -> None:
        """Stop in order. Calls in flight have `drain_seconds` to end."""
        self._started.close()

    @property
    def is_busy(self) -> bool:
        """Whether a call of the kubelet is in flight; after `stop`, one whose hook hangs."""
        return not self._sockets.drain(0.0)

    def __enter__(self) -> DriverProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, stack: ExitStack) -> None:
        self.lock.acquire(HANDOVER_SECONDS)
        stack.callback(self._release_lock)
        self._dependencies.store.migrate(self.data, self._boot_id)
        for stop in (self._api.close, self._statuses.stop, self.publisher.stop):
            stack.callback(stop, STOP_SECONDS)
        if self._events is not None:
            stack.callback(self._events.stop, STOP_SECONDS)
            self._events.start()
        stack.callback(self._damaged.stop, STOP_SECONDS)
        stack.callback(self._reading.stop, STOP_SECONDS)
        self._reading.start()
        if self.containers is not None:
            stack.callback(self.containers.stop, STOP_SECONDS)
            self.containers.start()
        self._listen(stack)
        self.publisher.start(None if self.settings.serve == "service" else self.registration)
        self._statuses.start()

    def _release_lock(self) -> None:
        """Release the lock. If a hook still runs, the end of the process releases it."""
        if not self.is_busy:
            self.lock.release()

    def _listen(self, stack: ExitStack) -> None:
        for socket in remove_dead(self.paths, self.driver.info.name):
            log.info("removed %s, which a killed instance left", socket)
        self._serves()
        self._sockets.open()
        stack.callback(self._sockets.close)
        stack.callback(self.publisher.health.feed.close)  # the server would wait for its streams
        stack.callback(self._withdraw)
        if self.settings.http_address:
            http = HttpServer(self.settings.http_address, self._pages())
            http.start()
            stack.callback(http.stop)
        log.info("serving driver %s for node %s", self.driver.info.name, self.node.name)
        if self.settings.serve != "service" and not self.registration.registered.is_set():
            log.info("waiting for the kubelet, which finds the driver by %s", self.paths.registration)

    def _pages(self) -> dict[str, Page]:
        served = self.settings.serve
        of_claims = self.preparer.check, self._damaged.check, self.publisher.discovery.failures.check
        checks = () if served == "registration" else of_claims
        return pages(self.metrics, self.paths, served, self.registration, self.publisher.slices, checks=checks)

    def _withdraw(self) -> None:
        """Close the registration when no call is in flight: the kubelet, which loses it, ends those that are.

        In a rolling update new calls go to the process that was registered last. Without one they come here.
        """
        seconds = self.settings.drain_seconds
        ends = monotonic() + seconds
        self._sockets.drain(seconds)
        self._sockets.withdraw()
        if not self._sockets.drain(max(0.0, ends - monotonic())):
            log.warning("calls are still in flight after %.0f s; their claims are undone at the next start", seconds)

    def _services(self) -> dict[str, dict[str, Method]]:
        steps = self.driver.steps
        prepare = steps.around("prepare", self.preparer.prepare, _claim_attributes)
        unprepare = steps.around("unprepare", self.preparer.unprepare, _claim_attributes)
        calls = partial(self._call, "prepare", prepare), partial(self._call, "unprepare", unprepare)
        plugin = plugin_services(*calls, steps.step if steps.observers else None)
        return {**plugin, **self.publisher.health.services()}

    def _call(self, name: str, act: Callable[[ClaimRef, Deadline], _T], ref: ClaimRef, deadline: Deadline) -> _T:
        """Prepare or unprepare a claim. Containers may need other resources then, even if that fails."""
        with self.metrics.call(name):
            try:
                return act(ref, deadline)
            finally:
                if self.containers is not None:
                    self.containers.synchronize_soon()

    def _state_is_read(self) -> None:
        """Say what an operator must know of the state files, now that all are read."""
        events = [NodeEvent("StateFileUnreadable", file.advice) for file in self.preparer.unreadable()]
        try:
            self.preparer.check()
        except RetriableError as error:
            log.error("%s", error)
            events.append(NodeEvent("TooManyStateFiles", f"driver {self.driver.info.name}: {error}"))
        if self._events is not None:
            for event in events:
                self._events.put(event)
        self._damaged.start()

    def _state_files_changed(self) -> None:
        self.publisher.discovery.publish_again()
        if self.containers is not None:
            self.containers.synchronize_soon()

    def _report_unpublished(self, pool: str, error: BaseException) -> None:
        """Write an event: the kubelet does not know why a node has no devices. It needs the API server."""
        if self._events is not None and not isinstance(error, UnreachableError):
            reason: Reason = "DevicesNotPublished" if pool else "DevicesNotDiscovered"
            if isinstance(error, DroppedFieldsError) and not error.withheld:
                reason = "DeviceFieldsDropped"
            of_pool = f" pool {pool}:" if pool else ""
            self._events.put(NodeEvent(reason, f"driver {self.driver.info.name}:{of_pool} {error}"))

    def _report_foreign(self, item: ForeignSlice) -> None:
        if self._events is not None:
            self._events.put(NodeEvent("ForeignSlice", f"driver {self.driver.info.name}: {item}"))

    def _report_health(self, changes: Sequence[HealthChange]) -> None:
        """Write events: the kubelet writes health into the status of pods, where it is seen too late."""
        if self._events is not None:
            for event in health_events(self.driver.info.name, changes, self.preparer.held()):
                self._events.put(event)

    def _report_undo(self, claim: ClaimRef, steps: Sequence[UndoStep]) -> None:
        """Count the steps that were refused, and write events about those with which no pod is left."""
        self.metrics.undone(steps)
        if self._events is not None:
            for event in undo_events(self.driver.info.name, claim, steps):
                self._events.put(event)

    def _make_publisher(self) -> Publisher:
        unhealthy = UnhealthyStore(self.data / UNHEALTHY_FILE, self._files, self.locks)
        return Publisher(
            self.driver,
            self.node,
            self.settings,
            self._api.get,
            unhealthy,
            failed=self._report_unpublished,
            foreign=self._report_foreign,
        )

    def _make_dependencies(self) -> Dependencies:
        return Dependencies.of(
            self.driver,
            self.data,
            self.settings.cdi_dir,
            self._files,
            boot_id=self._boot_id,
            fetch=self._api.fetch,
            fetch_pod=self._api.fetch_pod,
            find_device=self.publisher.discovery.published,
            find_counters=self.publisher.discovery.counters,
            announce=self._statuses.put,
            undone=self._report_undo,
            locks=self.locks,
        )

    def _make_container_hooks(self) -> ContainerHooks | None:
        if not self.driver.is_nri_plugin or self.settings.serve == "registration":
            return None
        from dra_sdk.node.runtime.container_hooks import ContainerHooks  # noqa: PLC0415 (NRI is for few drivers)

        ended = partial(self._ended, "the container runtime has ended the connection that it started this process with")
        return ContainerHooks(
            self.driver, self.node, self.settings, self.preparer, self.metrics, ended=ended, undone=self._report_undo
        )

    def _add_gauges(self) -> None:
        self.metrics.add_gauges(self.preparer, self.registration, self.publisher.slices)
        if self.settings.serve != "registration":
            self.metrics.add_devices(self.publisher.discovery.all_published, self.publisher.health.feed.snapshot)
            self.metrics.add_driver_gauges(self.publisher.discovery.omissions.gauges)
        if self.driver.implements("dra_metrics") and self.settings.serve != "registration":
            self.metrics.add_driver_gauges(lambda: self.driver.metrics(self.node, self.preparer.held()))

    def _connect(self) -> KubeClient:
        agent = f"dra-sdk/{self.driver.info.name}"
        return KubeClient.connect(self.settings.kubeconfig, agent=agent, observe=self.metrics.request)


def _claim_attributes(ref: ClaimRef, _deadline: Deadline) -> dict[str, str]:
    return {"claim": f"{ref.namespace}/{ref.name}", "uid": ref.uid}


def _paths(settings: Settings, driver: str) -> SocketPaths:
    paths = socket_paths(driver, settings.registry, settings.plugin_data(driver), settings.pod_uid)
    return SocketPaths(paths.registration, paths.registration) if settings.serve == "common" else paths
