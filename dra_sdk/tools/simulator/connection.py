"""One client connection of the API server: reading requests, striking faults, answering, streaming watches."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from dra_sdk.tools.simulator import discovery, http1, routes, statuses
from dra_sdk.tools.simulator.faults import Delay, Effect, Faults, Reject, Reset
from dra_sdk.tools.simulator.handlers import Handlers
from dra_sdk.tools.simulator.history import Watch
from dra_sdk.tools.simulator.http1 import Request, Response
from dra_sdk.tools.simulator.request_log import RequestLog, RequestRecord
from dra_sdk.tools.simulator.routes import Target
from dra_sdk.tools.simulator.statuses import StatusError

if TYPE_CHECKING:
    from dra_sdk.tools.simulator.objects import ObjectStore

_LOOK_SECONDS = 0.5


class ConnectionDroppedError(Exception):
    """The connection ends here, without a further answer."""


class Service:
    """What all connections of one server share."""

    def __init__(self, store: ObjectStore, token: str | None, git_version: str, bookmark_seconds: float) -> None:
        self.store = store
        self.token = token
        self.git_version = git_version
        self.bookmark_seconds = bookmark_seconds
        self.faults = Faults()
        self.log = RequestLog()
        self.handlers = Handlers(store)
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._streams: dict[Watch, socket.socket] = {}

    def streaming(self, watch: Watch, connection: socket.socket) -> None:
        """Notes that a watch streams over this connection; closes it at once where the server is stopping."""
        with self._lock:
            self._streams[watch] = connection
        if self.stopping.is_set():
            watch.close()

    def streamed(self, watch: Watch) -> None:
        """Forgets a watch that has ended."""
        with self._lock:
            self._streams.pop(watch, None)
        self.store.unwatch(watch)

    def close_streams(self, *, reset: bool) -> int:
        """Ends all watches, properly or by breaking their connections; returns how many there were."""
        with self._lock:
            streams = dict(self._streams)
        for watch, connection in streams.items():
            if reset:
                shut(connection, socket.SHUT_RDWR)
            self.store.unwatch(watch)
        return len(streams)

    @property
    def open_streams(self) -> int:
        """How many watches are open."""
        with self._lock:
            return len(self._streams)


class Connection:
    """One client connection, request after request."""

    def __init__(self, service: Service, connection: socket.socket, stream: BinaryIO) -> None:
        self.service = service
        self.connection = connection
        self.stream = stream

    def serve(self) -> None:
        """Until the client closes or the server stops."""
        while not self.service.stopping.is_set():
            request = http1.read_request(self.stream, self.connection.sendall)
            if request is None:
                return
            self._answer(request)
            if not request.keep_alive:
                return

    def _answer(self, request: Request) -> None:
        started = time.monotonic()
        target = Target(request.method.lower(), request.url.partition("?")[0])
        try:
            target = self._target(request)
            effects = self.service.faults.strike(target)
            self._before(effects)
            self._authenticate(request)
            outcome = self._outcome(target, request)
            self._after(effects, outcome)
        except StatusError as error:
            outcome = _failure(error)
        except ConnectionDroppedError:
            self._record(target, request, started, 0)
            raise
        self._record(target, request, started, outcome.code if isinstance(outcome, Response) else 200)
        if isinstance(outcome, Response):
            self.connection.sendall(outcome.encoded())
        else:
            self._stream(outcome, target)

    def _target(self, request: Request) -> Target:
        if request.oversized:
            raise statuses.too_large(http1.MAX_BODY)
        return routes.parse(self.service.store.catalog, request.method, request.url)

    def _before(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Delay):
                self.service.stopping.wait(effect.seconds)
            elif isinstance(effect, Reject):
                raise effect.error
            elif not effect.after_serving:
                raise ConnectionDroppedError

    def _after(self, effects: list[Effect], outcome: Response | Watch) -> None:
        if any(isinstance(effect, Reset) for effect in effects):
            if isinstance(outcome, Watch):
                self.service.store.unwatch(outcome)
            raise ConnectionDroppedError

    def _authenticate(self, request: Request) -> None:
        token = self.service.token
        if token is not None and request.headers.get("authorization") != f"Bearer {token}":
            raise statuses.unauthorized()

    def _outcome(self, target: Target, request: Request) -> Response | Watch:
        if target.resource:
            if target.verb == "watch":
                target.number("timeoutSeconds")
                return self.service.handlers.open_watch(target, target.resource)
            return self.service.handlers.handle(target, target.resource, request)
        if target.path.rstrip("/") in discovery.HEALTH_PATHS:
            return Response(200, b"ok", "text/plain")
        found = discovery.document(self.service.store.catalog, target.path, self.service.git_version)
        if found is None:
            return Response(404, b"404 page not found\n", "text/plain; charset=utf-8")
        return Response(200, json.dumps(found).encode())

    def _stream(self, watch: Watch, target: Target) -> None:
        self.service.streaming(watch, self.connection)
        try:
            self.connection.sendall(http1.head(200, http1.JSON_TYPE, {"Transfer-Encoding": "chunked"}))
            self._send_events(watch, target)
            self.connection.sendall(http1.chunk(b""))
        finally:
            self.service.streamed(watch)

    def _send_events(self, watch: Watch, target: Target) -> None:
        bookmarks = target.flag("allowWatchBookmarks")
        now = quiet_since = time.monotonic()
        ends = now + (target.number("timeoutSeconds") or float("inf"))
        while now < ends:
            event = watch.next(min(_LOOK_SECONDS, ends - now))
            now = time.monotonic()
            if event:
                if event.type != "BOOKMARK" or bookmarks:
                    self.connection.sendall(http1.chunk(event.line))
                quiet_since = now
            elif watch.closed:
                return
            elif _readable(self.connection):
                # A client does not speak during a watch: this is its end of the connection closing.
                raise ConnectionDroppedError
            elif bookmarks and now - quiet_since >= self.service.bookmark_seconds:
                self.service.store.bookmark(watch)

    def _record(self, target: Target, request: Request, started: float, code: int) -> None:
        self.service.log.append(
            RequestRecord(
                target.verb,
                target.plural,
                target.subresource,
                target.namespace,
                target.name,
                target.path,
                request.headers.get("user-agent", ""),
                code,
                started,
                time.monotonic() - started,
            )
        )


def _failure(error: StatusError) -> Response:
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    return Response(error.code, json.dumps(error.status).encode(), headers=headers)


def _readable(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(0))


def shut(connection: socket.socket, how: int) -> None:
    """Shuts a connection down; no error where the other side was faster."""
    # Not connection.shutdown(): on a TLS socket that would have the serving thread go on in the clear.
    with suppress(OSError):
        socket.socket.shutdown(connection, how)
