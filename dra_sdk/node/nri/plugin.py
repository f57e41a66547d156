"""A plugin that stays connected: it connects, and connects again after the runtime's restart.

A runtime can also start a plugin itself. Then the plugin inherits a connected socket, which serves once: the runtime
starts the plugin again after its own restart.

Source: containerd/nri pkg/stub (connect), pkg/api (PluginSocketEnvVar and the names beside it).
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Event
from typing import Final, Self

from dra_sdk.errors import NriError, SettingsError
from dra_sdk.hardware.host_paths import follow
from dra_sdk.node.nri import events
from dra_sdk.node.nri.events import SAFE_UPDATES, RuntimeInfo
from dra_sdk.node.nri.handler_threads import HandlerThreads
from dra_sdk.node.nri.session import NriSession, PluginDescription, SessionLimits, Subscription, Synchronize
from dra_sdk.node.threads import RestartingThread
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

log = logging.getLogger(__name__)
SOCKET: Final = Path("/var/run/nri/nri.sock")
"""Where container runtimes listen for plugins."""
INDEX: Final = 50
"""The default index: runtimes call plugins in the order of their indices."""
CONNECT_SECONDS: Final = 5.0
FIRST_DELAY: Final = 0.25
"""Seconds from the end of a connection to the next attempt."""
LAST_DELAY: Final = 5.0
"""Seconds; the delay doubles up to this. Containers that start without the plugin are not adjusted."""

SOCKET_VARIABLE: Final = "NRI_PLUGIN_SOCKET"
NAME_VARIABLE: Final = "NRI_PLUGIN_NAME"
INDEX_VARIABLE: Final = "NRI_PLUGIN_IDX"

_NAME: Final = re.compile(r"[A-Za-z0-9_.+-]+")
_LAST_INDEX: Final = 99


def socket_below(root: Path) -> Path:
    """Return `SOCKET` of the host whose root is `root`."""
    return SOCKET if root == Path("/") else follow(root, SOCKET)


@dataclass(frozen=True)
class Launch:
    """What a runtime gives to a plugin that it starts itself.

    connection: the socket, connected to the runtime. It cannot be opened again when it ends.
    name: the plugin's name; None if the plugin may choose it.
    index: 0 to 99; None if the plugin may choose it.
    """

    connection: socket.socket
    name: str | None = None
    index: int | None = None

    @classmethod
    def take(cls, environment: MutableMapping[str, str]) -> Self | None:
        """Take what the runtime has put into the environment; None if it has not started this process.

        The variable of the socket is removed, so that child processes do not see it. SettingsError names the
        variable that has no meaning.
        """
        number = environment.pop(SOCKET_VARIABLE, "")
        if not number:
            return None
        index = environment.get(INDEX_VARIABLE) or None
        if index is not None and not re.fullmatch("[0-9]{1,2}", index):
            raise SettingsError(f"environment variable {INDEX_VARIABLE}={index!r}: must be a number from 0 to 99")
        name = environment.get(NAME_VARIABLE) or None
        return cls(_inherited(number), name, None if index is None else int(index))


def _inherited(number: str) -> socket.socket:
    """Return the socket with this file descriptor, which no child process inherits."""
    problem = f"environment variable {SOCKET_VARIABLE}={number!r}: must be the file descriptor of a unix socket"
    try:
        sock = socket.socket(fileno=int(number))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{problem}: {error}") from error
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
        sock.detach()
        raise SettingsError(f"{problem} that has a connection")
    sock.set_inheritable(False)
    return sock


@dataclass(frozen=True)
class ConnectOptions:
    """How a plugin connects to the runtime.

    index: 0 to 99; runtimes call plugins in this order.
    path: the runtime's socket.
    limits: how long a connection may take to begin.
    launch: how the runtime started this process, if it did. The plugin uses that connection, name and index.
    ended: called when the connection of `launch` has ended, but not by `stop`.
    """

    index: int = INDEX
    path: Path = SOCKET
    limits: SessionLimits = field(default_factory=SessionLimits)
    launch: Launch | None = None
    ended: Callable[[], None] = lambda: None


class NriPlugin:
    """Connects to the container runtime, registers, and answers its calls by handlers.

    name: letters, digits and `_.+-`, such as `dra.cpu`.
    synchronize: gets all pods and containers of the node at each connection.
    subscriptions: what the plugin does at which event. Events that the runtime is too old for are left out, and logged.
    options: how it connects.

    runtime: the runtime, while the plugin is connected and synchronized; else None.
    connections: how often the plugin has been synchronized.

    SettingsError if name or index are not allowed. Handlers must be quick: they answer from memory, because the runtime
    handles no other pod of the node until then.
    """

    def __init__(
        self,
        name: str,
        synchronize: Synchronize,
        subscriptions: Mapping[events.Event, Subscription],
        options: ConnectOptions,
    ) -> None:
        launch, index = options.launch, options.index
        if launch is not None:
            name = name if launch.name is None else launch.name
            index = index if launch.index is None else launch.index
        if not _NAME.fullmatch(name):
            raise SettingsError(f"NRI plugin name {name!r}: only letters, digits and _.+- are allowed")
        if not 0 <= index <= _LAST_INDEX:
            raise SettingsError(f"NRI plugin {name}: index {index} is not between 0 and {_LAST_INDEX}")
        self._options = options
        self._peer = f"the socket of {SOCKET_VARIABLE}" if launch else str(options.path)
        self._connection = launch.connection if launch else None
        self._plugin = PluginDescription(name, index, synchronize, subscriptions)
        self._handlers = HandlerThreads(f"nri-{name}")
        self._thread = RestartingThread(f"NRI plugin {name}", self._run)
        self._changed = Condition()
        self._session: NriSession | None = None
        self.runtime: RuntimeInfo | None = None
        self.connections = 0
        self._stopped = False

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
        if self._connection is not None:
            self._connection.close()  # open only if no session has begun
        return self._handlers.stop(timeout) and ended

    def wait_synchronized(self, timeout: float, connections: int = 1) -> bool:
        """Wait until the plugin is connected, and was synchronized at least so often. False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self.runtime is not None and self.connections >= connections, timeout)

    def update_containers(self, updates: Sequence[pb.ContainerUpdate], timeout: float) -> list[pb.ContainerUpdate]:
        """Ask the runtime to change containers, outside any event; returns the updates that failed.

        NriError if the plugin is not connected, if a handler calls this, or if the runtime is older than NRI 0.12.1 and
        may deadlock (containerd#13733): there, return updates from handlers instead.
        """
        with self._changed:
            session, runtime = self._session, self.runtime
        if session is None or runtime is None:
            raise NriError(f"{self._peer}: UpdateContainers: the plugin is not connected")
        if self._handlers.is_current():
            raise NriError(f"{self._peer}: UpdateContainers: a handler must return its updates instead")
        if runtime.nri < SAFE_UPDATES:
            needed = ".".join(map(str, SAFE_UPDATES))
            raise NriError(f"{self._peer}: UpdateContainers: {runtime} may deadlock; NRI {needed} is needed")
        return session.update_containers(updates, timeout)

    def _run(self, stop: Event) -> None:
        """Connect and stay connected until `stop`; NriError if a connection fails, after which the thread repeats."""
        if self._connection is not None:
            self._run_once(self._connection, stop)
            return
        while not stop.is_set():
            self._thread.delay = min(self._thread.delay, LAST_DELAY)
            sock = self._connect(stop)
            if sock is None:
                return
            self._use(sock, stop)
            if not stop.is_set():
                log.warning("%s: the runtime has closed the connection; connecting again", self._peer)
                stop.wait(FIRST_DELAY)

    def _run_once(self, sock: socket.socket, stop: Event) -> None:
        """Stay connected until the runtime ends the connection that it has made."""
        try:
            self._use(sock, stop)
        except NriError as error:
            log.error("%s", error)
        if not stop.is_set():
            log.warning("%s: the connection has ended; only the runtime can start the plugin again", self._peer)
            self._options.ended()

    def _use(self, sock: socket.socket, stop: Event) -> None:
        """Use a connected socket until the connection ends; NriError if it did not end in order or by `stop`."""
        session = NriSession(sock, self._peer, self._plugin, self._handlers, self._options.limits)
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
                self._session = self.runtime = None
                self._changed.notify_all()

    def _connect(self, stop: Event) -> socket.socket | None:
        """Return a connected socket; None if `stop` came first. What keeps it from connecting is logged once."""
        delay, said = FIRST_DELAY, ""
        while not stop.is_set():
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(CONNECT_SECONDS)
            try:
                sock.connect(str(self._options.path))
            except OSError as error:
                sock.close()
                problem = error.strerror or str(error)
                if problem != said:
                    log.warning("%s: cannot connect to the container runtime: %s; trying again", self._peer, problem)
                said = problem
                stop.wait(delay)
                delay = min(2 * delay, LAST_DELAY)
            else:
                return sock
        return None

    def _synchronized(self, runtime: RuntimeInfo) -> None:
        self._thread.progressed()
        log.info("%s: connected to %s", self._peer, runtime)
        with self._changed:
            self.runtime = runtime
            self.connections += 1
            self._changed.notify_all()
