"""The sockets of one driver process: which there are, in which order they open, and that they stay.

`serve` says what this process offers: `both` on a socket each (the default), `common` both on one socket, or only
`registration` or only `service` where two processes share the work. A socket file that somebody removed or replaced is
made again, because the kubelet would otherwise drop the driver for good.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Thread
from time import monotonic

from dra_sdk.errors import SettingsError
from dra_sdk.node.kubelet.registration import SERVICE, Registration
from dra_sdk.node.kubelet.server import Method, SocketServer
from dra_sdk.node.kubelet.sockets import SocketPaths
from dra_sdk.node.runtime.settings import Serve
from dra_sdk.node.runtime.supervise import Supervised

log = logging.getLogger(__name__)
Services = Mapping[str, Mapping[str, Method]]
SERVICE_THREADS = 16 + 4  # prepare calls, and two health streams of two versions
REGISTRAR_THREADS = 2
LOOK_SECONDS = 5.0
LAST_SECONDS = 1.0  # for a call that came in at the very end
CALL_SECONDS = 45.0  # that the kubelet waits for an answer
Plan = tuple[str, Path, Services, int]


class Sockets:
    """Opens the sockets, watches over them, and closes them in order."""

    def __init__(self, paths: SocketPaths, serve: Serve, services: Services, registration: Registration) -> None:
        self._plan = _plan(paths, serve, services, {SERVICE: registration.methods()})
        self._servers: list[SocketServer] = []
        self._replaced: list[SocketServer] = []
        self._watch = Supervised("sockets", self._look)

    def open(self) -> None:
        """Open the service first: the kubelet calls it as soon as it has registered us. SettingsError if one cannot."""
        try:
            for name, path, services, threads in self._plan:
                server = SocketServer(name, path, services, threads)
                server.start()
                self._servers.append(server)
        except BaseException:
            self.close()
            raise
        self._watch.start()

    def withdraw(self) -> None:
        """Close the socket that the kubelet registered, so that it sends nothing new."""
        self._watch.stop(LOOK_SECONDS)
        if len(self._servers) > 1:
            self._servers.pop().stop()

    def drain(self, seconds: float) -> bool:
        """Wait up to so many seconds until calls under way are answered; whether all are. Streams may go on."""
        ends = monotonic() + seconds
        return all(server.drain(max(0.0, ends - monotonic())) for server in (*self._replaced, *self._servers))

    def close(self) -> None:
        """Close what is still open; streams are to be ended before."""
        self._watch.ask()
        while self._servers:
            self._servers.pop().stop(LAST_SECONDS)

    def _look(self, stop: Event) -> None:
        while not stop.wait(LOOK_SECONDS):
            for place, server in enumerate(self._servers):
                if not server.intact():
                    log.error("%s was removed or replaced; making it again", server.path)
                    self._replace(place)

    def _replace(self, place: int) -> None:
        """Put a new server in the place of an old one; where that fails the next look tries again."""
        try:
            fresh = SocketServer(*self._plan[place])
            fresh.start()
        except SettingsError as error:
            log.error("%s", error)
            return
        old, self._servers[place] = self._servers[place], fresh
        self._replaced.append(old)
        Thread(target=self._retire, args=(old,), name="sockets-old", daemon=True).start()

    def _retire(self, old: SocketServer) -> None:
        """Stop a server that nobody finds any more, once the calls of those who know it are answered."""
        old.drain(CALL_SECONDS)
        old.stop(LAST_SECONDS)
        self._replaced.remove(old)


def _plan(paths: SocketPaths, serve: Serve, services: Services, registration: Services) -> list[Plan]:
    service = ("kubelet", paths.service, services, SERVICE_THREADS)
    registrar = ("registrar", paths.registration, registration, REGISTRAR_THREADS)
    common: Plan = ("kubelet", paths.registration, {**services, **registration}, SERVICE_THREADS + REGISTRAR_THREADS)
    return {"both": [service, registrar], "common": [common], "registration": [registrar], "service": [service]}[serve]
