"""Registration: the kubelet watches a directory for registration sockets and registers the plugins behind them.

To register a new socket the kubelet connects, calls GetInfo, checks the answer, adds the plugin and tells it the
outcome, also of a failure. A plugin that does not confirm its registration is removed again. Failed attempts are
repeated. When a socket vanishes its plugin is removed; a socket made again under the same path counts as a new one.
Names that start with a dot and files that are not sockets are ignored; subdirectories are searched.
Source: Kubernetes 1.36 pkg/kubelet/pluginmanager.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from dra_sdk.tools.simulator.kubelet.calls import PLUGIN_TYPE, Connectivity, KubeletCalls
from dra_sdk.tools.simulator.kubelet.plugins import PluginInfo, Plugins, RegisteredPlugin, choose_service
from dra_sdk.tools.simulator.kubelet.records import GET_INFO, NOTIFY, DriverCall, RegistrationError

SocketIdentity = tuple[int, int]
"""Tells a socket from a later one under the same path: inode and time of creation."""
_STOP_CHECK_SECONDS = 0.05


def sockets_in(directory: Path) -> dict[str, SocketIdentity]:
    """Return the registration sockets below `directory`, by path."""
    sockets: dict[str, SocketIdentity] = {}
    for folder, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(folder, name)
            try:
                status = path.stat()
            except OSError:
                # Removed since the directory was read.
                continue
            if not name.startswith(".") and stat.S_ISSOCK(status.st_mode):
                sockets[str(path)] = (status.st_ino, status.st_mtime_ns)
    return sockets


@dataclass
class _Socket:
    """The state of one registration socket.

    path: of the socket.
    identity: of the socket.
    plugin: the registered plugin, None before.
    worker: the thread of the attempt under way, or of the last one.
    failures: how many attempts failed.
    next_attempt: not before this `time.monotonic()`.
    removed: whether the socket vanished.
    """

    path: str
    identity: SocketIdentity
    plugin: RegisteredPlugin | None = None
    worker: threading.Thread | None = None
    failures: int = 0
    next_attempt: float = field(default_factory=time.monotonic)
    removed: bool = False


class RegistryWatcher:
    """Registers and removes plugins as sockets come and go in the directory; `registrar.stopping` ends its thread."""

    def __init__(self, directory: Path, registrar: Registrar) -> None:
        self._directory = directory
        self._registrar = registrar
        self._plugins, self._timing, self._stopping = registrar.plugins, registrar.plugins.timing, registrar.stopping
        self._lock = threading.Lock()
        self._sockets: dict[str, _Socket] = {}
        self._errors: list[RegistrationError] = []
        self._thread = threading.Thread(target=self._run, name="kubelet-watcher")

    def start(self) -> None:
        """Start to watch; sockets that are there count as new."""
        self._thread.start()

    def stop(self) -> None:
        """Deregister everything and wait for the attempts under way; `stopping` must be set before."""
        self._thread.join()
        for socket in list(self._sockets.values()):
            self._remove(socket)
            if socket.worker:
                socket.worker.join()

    @property
    def errors(self) -> list[RegistrationError]:
        """The failed attempts, oldest first."""
        with self._lock:
            return list(self._errors)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._compare()
            self._stopping.wait(self._timing.poll)

    def _compare(self) -> None:
        present = sockets_in(self._directory)
        for socket in list(self._sockets.values()):
            if present.get(socket.path) != socket.identity:
                self._remove(socket)
        for path, identity in present.items():
            socket = self._sockets.setdefault(path, _Socket(path, identity))
            idle = socket.plugin is None and (socket.worker is None or not socket.worker.is_alive())
            if idle and socket.next_attempt <= time.monotonic():
                socket.worker = threading.Thread(target=self._attempt, args=(socket,), name="kubelet-register")
                socket.worker.start()

    def _attempt(self, socket: _Socket) -> None:
        try:
            self._registrar.register(socket.path, lambda plugin: self._registered(socket, plugin))
        except RegistrationError as error:
            with self._lock:
                self._errors.append(error)
                pause = min(self._timing.backoff_first * 2**socket.failures, self._timing.backoff_last)
                socket.failures += 1
                socket.next_attempt = time.monotonic() + pause

    def _registered(self, socket: _Socket, plugin: RegisteredPlugin) -> None:
        with self._lock:
            removed = socket.removed
            socket.plugin = None if removed else plugin
        if removed:
            self._plugins.remove(plugin)

    def _remove(self, socket: _Socket) -> None:
        del self._sockets[socket.path]
        with self._lock:
            socket.removed = True
            plugin, socket.plugin = socket.plugin, None
        if plugin:
            self._plugins.remove(plugin)


class Registrar:
    """Registers plugins, one attempt at a time; `stopping` ends an attempt early."""

    def __init__(self, plugins: Plugins, stopping: threading.Event) -> None:
        self.plugins = plugins
        self.stopping = stopping

    def register(self, socket: str, registered: Callable[[RegisteredPlugin], None]) -> None:
        """Try once; `registered` is called with the new plugin. `RegistrationError` if it fails."""
        ready = threading.Event()
        with closing(KubeletCalls(socket, self.plugins.timing)) as calls:
            connectivity = Connectivity(calls.channel, lambda connected: ready.set() if connected else None)
            try:
                self._wait_connected(ready, socket)
                plugin = self._add(calls, self._get_info(calls, socket))
                # Before the channel closes, because that takes time in which the socket may vanish.
                registered(plugin)
                self.plugins.set_notified(plugin)
            finally:
                connectivity.stop()

    def _wait_connected(self, ready: threading.Event, socket: str) -> None:
        ends = time.monotonic() + self.plugins.timing.dial
        while not ready.wait(_STOP_CHECK_SECONDS):
            if self.stopping.is_set() or time.monotonic() > ends:
                raise RegistrationError("dial", f"cannot connect within {self.plugins.timing.dial:g} s", socket=socket)

    def _get_info(self, calls: KubeletCalls, socket: str) -> PluginInfo:
        started = time.monotonic()
        result = calls.get_info()
        answer = result.message
        driver, error = (answer.name, "") if answer else ("", result.status)
        self.plugins.records.add_call(DriverCall(GET_INFO, driver, socket, started, result.seconds, error))
        if answer is None:
            raise RegistrationError("get-info", f"GetInfo: {error}", socket=socket)
        if answer.type != PLUGIN_TYPE:
            why = f"no handler registered for plugin type: {answer.type} at socket {socket}"
            self._refuse(calls, RegistrationError("plugin-type", why, driver=driver, socket=socket))
        # Without an endpoint the service is on the registration socket.
        return PluginInfo(driver, socket, answer.endpoint or socket, "", tuple(answer.supported_versions))

    def _add(self, calls: KubeletCalls, info: PluginInfo) -> RegisteredPlugin:
        try:
            service = choose_service(info.socket, info.driver, info.versions)
            plugin = self.plugins.add(PluginInfo(info.driver, info.socket, info.endpoint, service, info.versions))
        except RegistrationError as error:
            self._refuse(calls, error)
        try:
            self._notify(calls, info.driver, info.socket)
        except RegistrationError:
            self.plugins.remove(plugin)
            raise
        return plugin

    def _refuse(self, calls: KubeletCalls, error: RegistrationError) -> NoReturn:
        """Tell the plugin the error and raise it, even if the plugin did not answer."""
        try:
            self._notify(calls, error.driver, error.socket, error.why)
        except RegistrationError as unanswered:
            raise error from unanswered
        raise error

    def _notify(self, calls: KubeletCalls, driver: str, socket: str, refusal: str = "") -> None:
        started = time.monotonic()
        result = calls.notify(refusal)
        error = "" if result.ok else result.status
        self.plugins.records.add_call(
            DriverCall(NOTIFY, driver, socket, started, result.seconds, error, registered=not refusal)
        )
        if error:
            raise RegistrationError("notify", f"NotifyRegistrationStatus: {error}", driver=driver, socket=socket)
