"""A plugin that stays connected: it connects, and connects again after the runtime's restart."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Condition, Event
from typing import Final

from dra_sdk.errors import NriError, SettingsError
from dra_sdk.hardware.host_paths import follow
from dra_sdk.node.nri import events
from dra_sdk.node.nri.events import SAFE_UPDATES, RuntimeInfo
from dra_sdk.node.nri.handler_threads import HandlerThreads
from dra_sdk.node.nri.session import Plugin, Session, SessionLimits, Subscription, Synchronize
from dra_sdk.node.threads import RestartingThread
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

log = logging.getLogger(__name__)
SOCKET: Final = Path("/var/run/nri/nri.sock")
"""Where container runtimes listen for plugins."""
CONNECT_SECONDS: Final = 5.0
FIRST_DELAY: Final = 0.25
"""Seconds from the end of a connection to the next attempt."""
LAST_DELAY: Final = 5.0
"""Seconds; the delay doubles up to this. Containers that start without the plugin are not adjusted."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.+-]+")
_LAST_INDEX: Final = 99


def socket_below(root: Path) -> Path:
    """`SOCKET` of the host whose root is `root`."""
    return SOCKET if root == Path("/") else follow(root, SOCKET)


class NriPlugin:
    """Connects to the container runtime, registers, and answers its calls by handlers.

    name: letters, digits and `_.+-`, such as `dra.cpu`.
    index: 0 to 99; runtimes call plugins in this order.
    synchronize: gets all pods and containers of the node at each connection.
    subscriptions: what the plugin does at which event. Events that the runtime is too old for are left out, and logged.
    path: the runtime's socket.
    limits: how long a connection may take to begin.

    SettingsError if name or index are not allowed. Handlers must be quick: they answer from memory, because the runtime
    handles no other pod of the node until then.
    """

    def __init__(
        self,
        name: str,
        index: int,
        synchronize: Synchronize,
        subscriptions: Mapping[events.Event, Subscription],
        *,
        path: Path = SOCKET,
        limits: SessionLimits | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise SettingsError(f"NRI plugin name {name!r}: only letters, digits and _.+- are allowed")
        if not 0 <= index <= _LAST_INDEX:
            raise SettingsError(f"NRI plugin {name}: index {index} is not between 0 and {_LAST_INDEX}")
        self.path = path
        self._plugin = Plugin(name, index, synchronize, subscriptions)
        self._limits = limits or SessionLimits()
        self._handlers = HandlerThreads(f"nri-{name}")
        self._thread = RestartingThread(f"NRI plugin {name}", self._run)
        self._changed = Condition()
        self._session: Session | None = None
        self._runtime: RuntimeInfo | None = None
        self._connections = 0
        self._stopped = False

    @property
    def runtime(self) -> RuntimeInfo | None:
        """The runtime, while the plugin is connected and synchronized; else None."""
        with self._changed:
            return self._runtime

    @property
    def connections(self) -> int:
        """How often the plugin has been synchronized."""
        with self._changed:
            return self._connections

    def start(self) -> None:
        """Start to connect. Returns at once."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Disconnect, and wait up to `timeout` seconds until all threads have ended. False if a handler still runs."""
        self._thread.request_stop()
        with self._changed:
            self._stopped = True
            if self._session:
                self._session.close()
        ended = self._thread.stop(timeout)
        return self._handlers.stop(timeout) and ended

    def wait_synchronized(self, timeout: float, connections: int = 1) -> bool:
        """Wait until the plugin is connected, and was synchronized at least so often. False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._runtime is not None and self._connections >= connections, timeout
            )

    def update_containers(self, updates: Sequence[pb.ContainerUpdate], timeout: float) -> list[pb.ContainerUpdate]:
        """Ask the runtime to change containers, outside any event; returns the updates that failed.

        NriError if the plugin is not connected, if a handler calls this, or if the runtime is older than NRI 0.12.1 and
        may deadlock (containerd#13733): there, return updates from handlers instead.
        """
        with self._changed:
            session, runtime = self._session, self._runtime
        if session is None or runtime is None:
            raise NriError(f"{self.path}: UpdateContainers: the plugin is not connected")
        if self._handlers.is_current():
            raise NriError(f"{self.path}: UpdateContainers: a handler must return its updates instead")
        if runtime.nri < SAFE_UPDATES:
            needed = ".".join(str(each) for each in SAFE_UPDATES)
            raise NriError(f"{self.path}: UpdateContainers: {runtime} may deadlock; NRI {needed} is needed")
        return session.update_containers(updates, timeout)

    def _run(self, stop: Event) -> None:
        """Connect and stay connected until `stop`; NriError if a connection fails, after which the thread repeats."""
        while not stop.is_set():
            self._thread.delay = min(self._thread.delay, LAST_DELAY)
            sock = self._connect(stop)
            if sock is None:
                return
            session = Session(sock, str(self.path), self._plugin, self._handlers, self._limits)
            with self._changed:
                if self._stopped:
                    session.close()
                    return
                self._session = session
            try:
                session.run(self._synchronized)
            except NriError:
                if not stop.is_set():
                    raise
            finally:
                with self._changed:
                    self._session = self._runtime = None
                    self._changed.notify_all()
            if not stop.is_set():
                log.warning("%s: the runtime has closed the connection; connecting again", self.path)
                stop.wait(FIRST_DELAY)

    def _connect(self, stop: Event) -> socket.socket | None:
        """A connected socket; None if `stop` came first. What keeps it from connecting is logged once."""
        delay, said = FIRST_DELAY, ""
        while not stop.is_set():
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(CONNECT_SECONDS)
            try:
                sock.connect(str(self.path))
            except OSError as error:
                sock.close()
                problem = error.strerror or str(error)
                if problem != said:
                    log.warning("%s: cannot connect to the container runtime: %s; trying again", self.path, problem)
                said = problem
                stop.wait(delay)
                delay = min(2 * delay, LAST_DELAY)
            else:
                return sock
        return None

    def _synchronized(self, runtime: RuntimeInfo) -> None:
        self._thread.progressed()
        log.info("%s: connected to %s", self.path, runtime)
        with self._changed:
            self._runtime = runtime
            self._connections += 1
            self._changed.notify_all()
