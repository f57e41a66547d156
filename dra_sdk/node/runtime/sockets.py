"""The sockets of one driver process: which ones exist, the order in which they open, and that they are kept.

`serve` decides what this process offers: `both` on a socket each (the default), `common` both on one socket, or only
`registration` or only `service` if two processes share the services. A socket file that somebody removed or replaced is
made again, because the kubelet would otherwise never find the driver again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event, Lock, Thread
from time import monotonic
from typing import Final

from dra_sdk.errors import SettingsError
from dra_sdk.node.kubelet.registration import SERVICE, Registration
from dra_sdk.node.kubelet.sockets import SocketPaths
from dra_sdk.node.runtime.settings import Serve
from dra_sdk.node.threads import RestartingThread
from dra_sdk.rpc.server import Services, SocketServer

log = logging.getLogger(__name__)
SERVICE_THREADS: Final = 16 + 4  # prepare calls, and two health streams of two versions
REGISTRAR_THREADS: Final = 2
LOOK_SECONDS = 5.0  # between two checks of the socket files
LAST_SECONDS = 1.0  # for a call that arrives just before the end
CALL_SECONDS = 45.0  # that the kubelet waits for an answer


class Sockets:
    """Opens the sockets, watches them, and closes them in order."""

    def __init__(self, paths: SocketPaths, serve: Serve, services: Services, registration: Registration) -> None:
        self._plans = _plans(paths, serve, services, {SERVICE: registration.methods()})
        self._servers: list[SocketServer] = []
        self._retired: list[SocketServer] = []
        self._lock = Lock()
        self._watch = RestartingThread("sockets", self._look)

    def open(self) -> None:
        """Open the service, then the registration, after which the kubelet calls. SettingsError if that fails."""
        try:
            for plan in self._plans:
                server = plan()
                server.start()
                self._servers.append(server)
        except BaseException:
            self.close()
            raise
        self._watch.start()

    def withdraw(self) -> None:
        """Close the registration socket, so that the kubelet sends nothing new; with `serve=common` there is none."""
        self._watch.stop(LOOK_SECONDS)
        if len(self._servers) > 1:
            self._servers.pop().stop()

    def drain(self, seconds: float) -> bool:
        """Wait up to `seconds` until no unary call is in flight. False on timeout."""
        deadline = monotonic() + seconds
        with self._lock:
            servers = [*self._retired, *self._servers]
        return all(server.drain(max(0.0, deadline - monotonic())) for server in servers)

    def close(self) -> None:
        """Close what is still open. The caller ends streams before."""
        self._watch.request_stop()
        while self._servers:
            server = self._servers.pop()
            server.stop(LAST_SECONDS)
            with self._lock:
                self._retired.append(server)  # a hook may still run there

    def _look(self, stop: Event) -> None:
        while not stop.wait(LOOK_SECONDS):
            for index, server in enumerate(self._servers):
                if not server.is_intact():
                    log.error("%s was removed or replaced; making it again", server.path)
                    self._replace(index)

    def _replace(self, index: int) -> None:
        """Replace a server by a new one. If that fails, the next check tries again."""
        try:
            fresh = self._plans[index]()
            fresh.start()
        except SettingsError as error:
            log.error("%s", error)
            return
        with self._lock:
            old, self._servers[index] = self._servers[index], fresh
            self._retired.append(old)
        Thread(target=self._retire, args=(old,), name="sockets-old", daemon=True).start()

    def _retire(self, old: SocketServer) -> None:
        """Stop a server whose socket was removed, after the calls of its clients are answered."""
        old.drain(CALL_SECONDS)
        old.stop(LAST_SECONDS)
        if old.drain(CALL_SECONDS):
            with self._lock:
                self._retired.remove(old)


def _plans(
    paths: SocketPaths, serve: Serve, services: Services, registration: Services
) -> Sequence[Callable[[], SocketServer]]:
    """Return what makes each server, and makes it again."""
    threads = SERVICE_THREADS + REGISTRAR_THREADS
    service = partial(SocketServer, "kubelet", paths.service, services, SERVICE_THREADS)
    registrar = partial(SocketServer, "registrar", paths.registration, registration, REGISTRAR_THREADS)
    common = partial(SocketServer, "kubelet", paths.registration, {**services, **registration}, threads)
    return {"both": [service, registrar], "common": [common], "registration": [registrar], "service": [service]}[serve]
