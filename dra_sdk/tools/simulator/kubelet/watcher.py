"""Watching the registration directory: new sockets are registered, vanished ones deregistered, failures tried again.

A socket that was created anew under the same path counts as gone and come. Names that start with a dot and files that
are no sockets are ignored; subdirectories are looked into. Source: Kubernetes 1.36 pkg/kubelet/pluginmanager.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dra_sdk.tools.simulator.kubelet.errors import RegistrationError

if TYPE_CHECKING:
    from dra_sdk.tools.simulator.kubelet.plugins import Plugin, Plugins
    from dra_sdk.tools.simulator.kubelet.registration import Registrar
    from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming

Identity = tuple[int, int]
"""What tells a socket from one created later under the same path: inode and time of creation."""


def sockets_in(directory: Path) -> dict[str, Identity]:
    """The registration sockets below `directory`."""
    found: dict[str, Identity] = {}
    for folder, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(folder, name)
            try:
                status = path.stat()
            except OSError:
                # Gone between being listed and being looked at.
                continue
            if not name.startswith(".") and stat.S_ISSOCK(status.st_mode):
                found[str(path)] = (status.st_ino, status.st_mtime_ns)
    return found


@dataclass
class _Socket:
    """How far one socket has come. `plugin` is set once registered; `worker` runs the attempt under way."""

    path: str
    identity: Identity
    plugin: Plugin | None = None
    worker: threading.Thread | None = None
    failures: int = 0
    next_attempt: float = field(default_factory=time.monotonic)
    gone: bool = False


class RegistryWatcher:
    """Keeps `plugins` equal to the sockets in the directory, from `start` to `stop`."""

    def __init__(
        self,
        directory: Path,
        plugins: Plugins,
        registrar: Registrar,
        timing: KubeletTiming,
        stopping: threading.Event,
    ) -> None:
        self._directory = directory
        self._plugins = plugins
        self._registrar = registrar
        self._timing = timing
        self._stopping = stopping
        self._lock = threading.Lock()
        self._sockets: dict[str, _Socket] = {}
        self._errors: list[RegistrationError] = []
        self._thread = threading.Thread(target=self._run, name="kubelet-watcher")

    def start(self) -> None:
        """Starts watching; sockets already there count as new."""
        self._thread.start()

    def stop(self) -> None:
        """Deregisters everything and waits for the attempts under way; set `stopping` before."""
        self._thread.join()
        for socket in list(self._sockets.values()):
            self._forget(socket)
            if socket.worker:
                socket.worker.join()

    @property
    def errors(self) -> list[RegistrationError]:
        """The attempts that failed so far, oldest first."""
        with self._lock:
            return list(self._errors)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._look()
            self._stopping.wait(self._timing.poll)

    def _look(self) -> None:
        found = sockets_in(self._directory)
        for socket in list(self._sockets.values()):
            if found.get(socket.path) != socket.identity:
                self._forget(socket)
        for path, identity in found.items():
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

    def _registered(self, socket: _Socket, plugin: Plugin) -> None:
        with self._lock:
            gone = socket.gone
            socket.plugin = None if gone else plugin
        if gone:
            self._plugins.remove(plugin)

    def _forget(self, socket: _Socket) -> None:
        del self._sockets[socket.path]
        with self._lock:
            socket.gone = True
            plugin, socket.plugin = socket.plugin, None
        if plugin:
            self._plugins.remove(plugin)
