"""One driver as a running service: the order in which its parts start and stop.

```
start   data directory and its lock → state files → NRI → service socket → registration socket → discovery
        → slices, once the kubelet has registered the driver
stop    calls in flight → registration socket → service socket → NRI → discovery → slices → lock
```

NRI, the connection to the container runtime, exists only for drivers with hooks about pods and containers.

The kubelet may call as soon as the registration socket exists, so everything that a call needs starts before it.
Registration does not need the API server. ResourceSlices stay published when the process ends; the kubelet removes them
if no other process of the driver registers within 30 s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from dra_sdk.errors import SettingsError, UnreachableError
from dra_sdk.kube.client import KubeClient
from dra_sdk.loader import Driver
from dra_sdk.model.claim import ClaimRef, Deadline, HeldDevice
from dra_sdk.model.driver import Node
from dra_sdk.node.files import Files, private_directory
from dra_sdk.node.health.unhealthy_store import UNHEALTHY_FILE, UnhealthyStore
from dra_sdk.node.kubelet.draplugin import VERSIONS, plugin_services
from dra_sdk.node.kubelet.registration import Registration
from dra_sdk.node.kubelet.sockets import SocketPaths, remove_dead, socket_paths
from dra_sdk.node.locks import NamedLocks
from dra_sdk.node.prepare.cdi_specs import CdiSpecs
from dra_sdk.node.prepare.checkpoint_store import CheckpointStore
from dra_sdk.node.prepare.engine import Effects, Preparer
from dra_sdk.node.runtime.claims_api import ApiConnection, ClaimStatusWriter
from dra_sdk.node.runtime.endpoints import HttpServer, pages
from dra_sdk.node.runtime.events import EventWriter, Happening, Reason, health_events
from dra_sdk.node.runtime.instance import CLAIM_LOCKS, DATA_MODE, INSTANCE_LOCK, InstanceLock, read_boot_id
from dra_sdk.node.runtime.metrics import Metrics
from dra_sdk.node.runtime.publishing import Publisher
from dra_sdk.node.runtime.settings import Settings
from dra_sdk.node.runtime.sockets import Sockets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dra_sdk.model.claim import Claim
    from dra_sdk.model.edits import ContainerEdits
    from dra_sdk.node.health.feed import HealthChange
    from dra_sdk.node.metadata.directory import MetadataDirectory
    from dra_sdk.node.runtime.container_hooks import ContainerHooks

log = logging.getLogger(__name__)
STOP_SECONDS: Final = 5.0  # that each service may take to stop
SUCCESSION_SECONDS: Final = 30.0  # to wait for the former process to end; after that the kubelet has removed its slices


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
        self.driver, self.settings = driver, settings
        self.node = Node(settings.node_name, settings.host_root)
        self.data = settings.plugin_data(name)
        self.paths = _paths(settings, name)
        self.metrics = Metrics(name)
        driver.measure = self.metrics.hook
        private_directory(self.data, DATA_MODE)
        self._files, self._serves, self._ended = files or Files(), serves, ended
        self.locks = NamedLocks(self.data / CLAIM_LOCKS if shared else None)
        self._boot_id = read_boot_id(settings.host_root)
        self._api = ApiConnection(self._connect)
        self._statuses = ClaimStatusWriter(name, self._api.get)
        unhealthy = UnhealthyStore(self.data / UNHEALTHY_FILE, self._files, self.locks)
        self.containers: ContainerHooks | None = None
        self._events = EventWriter(name, self.node.name, self._api.get) if settings.events == "on" else None
        self.publisher = Publisher(
            driver,
            self.node,
            settings,
            self._api.get,
            unhealthy,
            discovered=self._synchronize_containers,
            failed=self._tell_unpublished,
        )
        self.publisher.health.feed.subscribe(self._tell_health)
        undoable = driver.implements("dra_unprepare")
        self._store = CheckpointStore.of(
            self.data, self._boot_id, self._files, undoable=undoable, shared=shared, volatile=driver.info.volatile
        )
        self.preparer = Preparer(driver, self.node, self._effects())
        self.registration = Registration(name, self.paths.service, (*VERSIONS, *self.publisher.health.versions()))
        services = plugin_services(self._prepare, self._unprepare, driver.step)
        services.update(self.publisher.health.services())
        self.metrics.add_gauges(self.preparer, self.registration, self.publisher.slices)
        if driver.implements("dra_metrics") and settings.serve != "registration":
            self.metrics.add_driver_gauges(lambda: driver.metrics(self.node, self.preparer.held()))
        self.containers = self._container_hooks()
        self._sockets = Sockets(self.paths, settings.serve, services, self.registration)
        self.lock = InstanceLock(self.data / INSTANCE_LOCK, shared=shared)
        self._started = ExitStack()

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
        self.lock.acquire(SUCCESSION_SECONDS)
        stack.callback(self._release_lock)
        self._store.migrate(self.data, self._boot_id)
        self.preparer.recover()
        for stop in (self._api.close, self._statuses.stop, self.publisher.stop):
            stack.callback(stop, STOP_SECONDS)
        if self._events is not None:
            stack.callback(self._events.stop, STOP_SECONDS)
            self._events.start()
            for each in self.preparer.unreadable():
                self._events.put(Happening("StateFileUnreadable", each))
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
        for dead in remove_dead(self.paths, self.driver.info.name):
            log.info("removed %s, which a killed instance left", dead)
        self._serves()
        self._sockets.open()
        stack.callback(self._sockets.close)
        stack.callback(self.publisher.health.feed.close)  # the server would wait for its streams
        stack.callback(self._withdraw)
        if self.settings.http_address:
            served = pages(self.metrics, self.paths, self.settings.serve, self.registration, self.publisher.slices)
            http = HttpServer(self.settings.http_address, served)
            http.start()
            stack.callback(http.stop)
        log.info("serving driver %s for node %s", self.driver.info.name, self.node.name)

    def _withdraw(self) -> None:
        """Close the registration when no call is in flight: the kubelet, which loses it, ends those that are.

        In a rolling update new calls go to the process that was registered last. Without one they come here meanwhile.
        """
        seconds = self.settings.drain_seconds
        ends = monotonic() + seconds
        self._sockets.drain(seconds)
        self._sockets.withdraw()
        if not self._sockets.drain(max(0.0, ends - monotonic())):
            log.warning("calls are still in flight after %.0f s; their claims are undone at the next start", seconds)

    def _prepare(self, ref: ClaimRef, deadline: Deadline) -> Sequence[HeldDevice]:
        with self.metrics.call("prepare"), self._telling_containers(), self._step("prepare", ref):
            return self.preparer.prepare(ref, deadline)

    def _unprepare(self, ref: ClaimRef, deadline: Deadline) -> None:
        with self.metrics.call("unprepare"), self._telling_containers(), self._step("unprepare", ref):
            self.preparer.unprepare(ref, deadline)

    def _step(self, name: str, ref: ClaimRef) -> AbstractContextManager[object]:
        return self.driver.step(name, claim=f"{ref.namespace}/{ref.name}", uid=ref.uid)

    @contextmanager
    def _telling_containers(self) -> Iterator[None]:
        """Claims change in the block, and even a call that fails may have undone one."""
        try:
            yield
        finally:
            self._synchronize_containers()

    def _tell_unpublished(self, pool: str, error: BaseException) -> None:
        """The kubelet does not know why a node has no devices. Without the API server there is nobody to tell."""
        if self._events is not None and not isinstance(error, UnreachableError):
            reason: Reason = "DevicesNotPublished" if pool else "DevicesNotDiscovered"
            of_pool = f" pool {pool}:" if pool else ""
            self._events.put(Happening(reason, f"driver {self.driver.info.name}:{of_pool} {error}"))

    def _tell_health(self, changes: Sequence[HealthChange]) -> None:
        """The kubelet writes health into the status of pods, where nobody looks before something is wrong."""
        if self._events is not None:
            for happening in health_events(self.driver.info.name, changes, self.preparer.held()):
                self._events.put(happening)

    def _synchronize_containers(self) -> None:
        if self.containers is not None:
            self.containers.synchronize_soon()

    def _container_hooks(self) -> ContainerHooks | None:
        if not self.driver.has_container_hooks or self.settings.serve == "registration":
            return None
        from dra_sdk.node.runtime.container_hooks import ContainerHooks  # noqa: PLC0415 (NRI is for few drivers)

        ended = partial(self._ended, "the container runtime has ended the connection that it started this process with")
        return ContainerHooks(self.driver, self.node, self.settings, self.preparer, self.metrics, ended=ended)

    def _connect(self) -> KubeClient:
        agent = f"dra-sdk/{self.driver.info.name}"
        return KubeClient.connect(self.settings.kubeconfig, agent=agent, observe=self.metrics.request)

    def _effects(self) -> Effects:
        info = self.driver.info
        return Effects(
            store=self._store,
            cdi=CdiSpecs(self.settings.cdi_dir, info.cdi_kind, info.name, self._files),
            fetch=self._api.fetch,
            published=self.publisher.discovery.published,
            boot_id=self._boot_id,
            locks=self.locks,
            metadata=_metadata(info.name, self.data, self._files) if info.metadata else None,
            announce=self._statuses.put,
            variables=_variables(info.name) if self.driver.has_container_hooks else None,
        )


def _metadata(driver: str, data: Path, files: Files) -> MetadataDirectory:
    from dra_sdk.node.metadata.directory import MetadataDirectory  # noqa: PLC0415 (its models are for few drivers)

    return MetadataDirectory(driver, data, files)


def _variables(driver: str) -> Callable[[Claim[Any]], Mapping[str, ContainerEdits]]:
    from dra_sdk.node.nri.containers import claim_variables  # noqa: PLC0415 (NRI is for few drivers)

    return claim_variables(driver)


def _paths(settings: Settings, driver: str) -> SocketPaths:
    paths = socket_paths(driver, settings.registry, settings.plugin_data(driver), settings.pod_uid)
    return SocketPaths(paths.registration, paths.registration) if settings.serve == "common" else paths
