"""One driver as a running service: what is started in which order, and stopped in which.

```
start   data directory and its lock → state files → service socket → registration socket → discovery → slices
stop    registration socket → calls under way → service socket → discovery → slices → lock
```

The kubelet may call as soon as the registration socket is there, so everything a call needs comes before it; the API
server is not needed to register. ResourceSlices stay published when the process ends: the kubelet removes them if
no successor connects within 30 s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from dra_sdk.errors import SettingsError
from dra_sdk.kube.client import KubeClient
from dra_sdk.loader import Driver
from dra_sdk.model.driver import Node
from dra_sdk.node.kubelet.plugin import VERSIONS, plugin_services
from dra_sdk.node.kubelet.registration import Registration
from dra_sdk.node.kubelet.sockets import SocketPaths, remove_dead, socket_paths
from dra_sdk.node.prepare.cdi import CdiDirectory
from dra_sdk.node.prepare.engine import Effects, Preparer
from dra_sdk.node.prepare.files import Files
from dra_sdk.node.prepare.locks import NamedLocks
from dra_sdk.node.prepare.order import Order
from dra_sdk.node.prepare.places import claim_store, settle
from dra_sdk.node.runtime import observe
from dra_sdk.node.runtime.connection import Connection
from dra_sdk.node.runtime.discovery import Discovery
from dra_sdk.node.runtime.http import HttpServer
from dra_sdk.node.runtime.instance import InstanceLock, read_boot_id
from dra_sdk.node.runtime.metrics import Metrics
from dra_sdk.node.runtime.settings import Settings
from dra_sdk.node.runtime.sockets import Sockets
from dra_sdk.node.runtime.statuses import StatusWriter
from dra_sdk.node.runtime.wellness import Wellness
from dra_sdk.node.slices.controller import SliceController
from dra_sdk.wire.dra import ClaimRef

if TYPE_CHECKING:
    from dra_sdk.node.overlay import Overlay
    from dra_sdk.node.prepare.metadata import ClaimMetadata

log = logging.getLogger(__name__)
T = TypeVar("T")
STOP_SECONDS = 5.0
SUCCESSION_SECONDS = 30.0


class DriverProcess:
    """Runs one driver on one node until `stop`; usable as a context manager."""

    def __init__(self, driver: Driver, settings: Settings, *, files: Files | None = None) -> None:
        name = driver.info.name
        self.driver, self.settings = driver, settings
        self.node = Node(settings.node_name, settings.host_root)
        self.data = settings.plugin_data(name)
        self.paths = _paths(settings, name)
        self.lock = InstanceLock(self.data / "instance.lock", shared=bool(settings.pod_uid))
        files = files or Files()
        self.metrics = Metrics(name)
        driver.observe = self.metrics.hook
        self.connection = Connection(self._connect)
        self.slices = SliceController(name, settings.node_name, self.connection.get)
        self.wellness = Wellness(driver, self.node, settings.taint_effect, self.data / "unhealthy.json", files)
        publish = self.wellness.between(self.slices.publish)
        self.discovery = Discovery(driver, self.node, publish, _overlay(settings))
        versions = (*VERSIONS, *self.wellness.versions())
        self.registration = Registration(name, self.paths.service, versions)
        self.statuses = StatusWriter(name, self.connection.get)
        self.boot_id = read_boot_id(settings.host_root)
        undoable = driver.implements("dra_unprepare")
        self.store = claim_store(self.data, self.boot_id, files, undoable=undoable, shared=bool(settings.pod_uid))
        self.preparer = Preparer(driver, self.node, self._effects(files))
        observe.add_gauges(self.metrics, self.preparer, self.registration, self.slices)
        self._started = ExitStack()

    def start(self) -> None:
        """Start everything, or nothing: what was begun is stopped again if a later step fails."""
        if not self.settings.registry.is_dir():
            raise SettingsError(
                f"{self.settings.registry} is no directory; a kubelet makes it, so check --kubelet-dir "
                f"and the host path of the driver's pod"
            )
        with ExitStack() as stack:
            self._start(stack)
            self._started = stack.pop_all()

    def stop(self) -> None:
        """Stop in order; calls under way may end within `drain_seconds`."""
        self._started.close()

    @property
    def busy(self) -> bool:
        """Whether a call of the kubelet is under way; after `stop` that is one whose hook hangs."""
        return not self.preparer.drain(0.0)

    def __enter__(self) -> DriverProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _connect(self) -> KubeClient:
        agent = f"dra-sdk/{self.driver.info.name}"
        return KubeClient.connect(self.settings.kubeconfig, agent=agent, observe=self.metrics.request)

    def _start(self, stack: ExitStack) -> None:
        _make_directory(self.data)
        if self.settings.serve == "registration":
            self._listen(stack)  # claims and slices belong to the process that offers the service
            return
        self.lock.acquire(SUCCESSION_SECONDS)
        stack.callback(self._let_in)
        settle(self.store, self.data, self.boot_id)
        self.preparer.recover()
        for service in (
            self.connection.close,
            self.statuses.stop,
            self.slices.stop,
            self.discovery.stop,
            self.wellness.stop,
        ):
            stack.callback(service, STOP_SECONDS)
        self._listen(stack)
        self.wellness.start()
        self.discovery.start()
        self.slices.start()
        self.statuses.start()

    def _let_in(self) -> None:
        """Let a successor in; where a hook hangs, the end of the process does, so that it never works beside that."""
        if not self.busy:
            self.lock.release()

    def _listen(self, stack: ExitStack) -> None:
        for dead in remove_dead(self.paths, self.driver.info.name):
            log.info("removed %s, which a killed instance left", dead)
        self._open_sockets(stack)
        if self.settings.http_address:
            serve = self.settings.serve
            pages = observe.pages(self.metrics, self.paths, serve, self.registration, self.slices)
            http = HttpServer(self.settings.http_address, pages)
            http.start()
            stack.callback(http.stop)
        log.info("serving driver %s for node %s", self.driver.info.name, self.node.name)

    def _open_sockets(self, stack: ExitStack) -> None:
        calls = plugin_services(self._measured(self.preparer.prepare), self._measured(self.preparer.unprepare))
        services = {**calls, **self.wellness.services()}
        sockets = Sockets(self.paths, self.settings.serve, services, self.registration)
        sockets.open()
        stack.callback(sockets.close)
        stack.callback(self.wellness.feed.close)  # its streams would keep the server waiting
        stack.callback(self._drain, sockets)
        stack.callback(sockets.withdraw)

    def _measured(self, function: Callable[[ClaimRef], T]) -> Callable[[ClaimRef], T]:
        def call(ref: ClaimRef) -> T:
            with self.metrics.call(function.__name__):
                return function(ref)

        return call

    def _drain(self, sockets: Sockets) -> None:
        seconds = self.settings.drain_seconds
        ends = monotonic() + seconds
        if not (sockets.drain(seconds) and self.preparer.drain(max(0.0, ends - monotonic()))):
            log.warning("calls are still under way after %.0f s; their claims are undone at the next start", seconds)

    def _effects(self, files: Files) -> Effects:
        info, shared = self.driver.info, bool(self.settings.pod_uid)
        if shared:
            _make_directory(self.data)
        return Effects(
            store=self.store,
            cdi=CdiDirectory(self.settings.cdi_dir, info.cdi_kind, files, driver=info.name),
            fetch=self.connection.fetch,
            published=self.discovery.published,
            boot_id=self.boot_id,
            locks=NamedLocks(self.data / "locks" if shared else None),
            order=Order.shared(self.data, self.boot_id) if shared else Order(),
            metadata=_metadata(info.name, self.data, files) if info.metadata else None,
            announce=self.statuses.put,
        )


def _overlay(settings: Settings) -> Overlay | None:
    if settings.overlay_file is None:
        return None
    from dra_sdk.node.overlay import load  # noqa: PLC0415 (brings CEL along, which few processes need)

    return load(settings.overlay_file)


def _metadata(driver: str, data: Path, files: Files) -> ClaimMetadata:
    from dra_sdk.node.prepare.metadata import ClaimMetadata  # noqa: PLC0415 (its models are for few drivers)

    return ClaimMetadata(driver, data, files)


def _make_directory(data: Path) -> None:
    try:
        data.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"cannot make the driver's data directory {data}: {error.strerror}") from error


def _paths(settings: Settings, driver: str) -> SocketPaths:
    paths = socket_paths(driver, settings.registry, settings.plugin_data(driver), settings.pod_uid)
    return SocketPaths(paths.registration, paths.registration) if settings.serve == "common" else paths
