"""One client connection of the API server: reads requests, injects faults, answers, and streams watches.

HTTP itself is the standard library's `http.server`; this module adds request bodies in chunks, TLS and watches.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from typing import Any

from dra_sdk.tools.simulator import resources, statuses
from dra_sdk.tools.simulator.faults import Delay, Effect, FaultRules, Reject, Reset
from dra_sdk.tools.simulator.handlers import Handlers
from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.request import (
    JSON_TYPE,
    ApiResponse,
    ReceivedRequest,
    RequestInfo,
    RequestLog,
    RequestRecord,
)
from dra_sdk.tools.simulator.statuses import StatusError
from dra_sdk.tools.simulator.watch_cache import Watcher

MAX_BODY = 3 * 1024 * 1024
_MAX_LINE = 64 * 1024
_HANDSHAKE_SECONDS = 5.0
_CLIENT_CHECK_SECONDS = 0.5
_NO_LINGER = struct.pack("ii", 1, 0)  # struct linger: on, for 0 seconds


class ResetConnectionError(Exception):
    """The connection ends here with a TCP reset, without a further answer."""


class Service:
    """What all connections of one server share."""

    def __init__(self, store: ObjectStore, token: str | None, git_version: str, bookmark_seconds: float) -> None:
        self.store = store
        self.token = token
        self.git_version = git_version
        self.bookmark_seconds = bookmark_seconds
        self.faults = FaultRules()
        self.log = RequestLog()
        self.handlers = Handlers(store)
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._streams: dict[Watcher, socket.socket] = {}

    def add_stream(self, watcher: Watcher, connection: socket.socket) -> None:
        """Note that a watch is streamed over this connection; close it at once if the server is stopping."""
        with self._lock:
            self._streams[watcher] = connection
        if self.stopping.is_set():
            watcher.close()

    def remove_stream(self, watcher: Watcher) -> None:
        """Forget a watch that has ended."""
        with self._lock:
            self._streams.pop(watcher, None)
        self.store.unwatch(watcher)

    def close_watches(self, *, reset: bool = False) -> int:
        """End all open watches, with a last chunk or (`reset`) by breaking their connections; return their number."""
        with self._lock:
            streams = dict(self._streams)
        for watcher, connection in streams.items():
            if reset:
                shut(connection, socket.SHUT_RDWR)
            self.store.unwatch(watcher)
        return len(streams)

    @property
    def open_watches(self) -> int:
        """How many watches are open over HTTP."""
        with self._lock:
            return len(self._streams)


class RequestHandler(BaseHTTPRequestHandler):
    """Serves one client connection, request after request, until the client closes it or the server stops."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # buffered, so that head and body leave in one packet

    def __init__(self, service: Service, connection: socket.socket, address: Any, server: BaseServer) -> None:
        self.service = service
        super().__init__(connection, address, server)

    def setup(self) -> None:
        """Do the TLS handshake, in the thread of this connection."""
        if isinstance(self.request, ssl.SSLSocket):
            self.request.settimeout(_HANDSHAKE_SECONDS)
            self.request.do_handshake()
            self.request.settimeout(None)
        super().setup()

    def handle(self) -> None:
        """Serve all requests of the connection."""
        try:
            super().handle()
        except ResetConnectionError:
            # With no time to linger, closing sends a reset in place of a proper end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name in http.server)
        """Print nothing: requests are in `RequestLog`."""

    def handle_expect_100(self) -> bool:
        """Tell the client to send the body. The client waits for that, so it must not stay in the buffer."""
        proceed = super().handle_expect_100()
        self.wfile.flush()
        return proceed

    # -- reading

    def parse_request(self) -> bool:
        """Read the head of a request; return False after an answer to one that is not HTTP.

        HTTP/0.9, which has neither a version nor headers, is refused, as a real API server does.
        """
        if not super().parse_request():
            return False
        if self.request_version == "HTTP/0.9":
            self.request_version = self.protocol_version  # else the answer would have no status line
            self.send_error(HTTPStatus.BAD_REQUEST, explain="the request has no version of HTTP, or version 0.9")
            return False
        return True

    def _read_body(self) -> bytes | None:
        """Return the body of the request; None if it was larger than `MAX_BODY`, ValueError if the request is not HTTP.

        A body that is too large is read to its end all the same, so that the client gets to read the answer.
        """
        if self.headers.defects:
            raise ValueError(f"not HTTP headers: {self.headers.defects[0]!r}")
        pieces: list[bytes] = []
        size = 0
        for piece in self._body_pieces():
            size += len(piece)
            if size <= MAX_BODY:
                pieces.append(piece)
            else:
                pieces.clear()
        return b"".join(pieces) if size <= MAX_BODY else None

    def _body_pieces(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := _length(self.rfile.readline(_MAX_LINE).partition(b";")[0].decode("latin-1"), 16):
                yield from self._read_exactly(size)
                self.rfile.readline(_MAX_LINE)
            self.rfile.readline(_MAX_LINE)
        else:
            yield from self._read_exactly(_length(self.headers.get("Content-Length", "0"), 10))

    def _read_exactly(self, size: int) -> Iterator[bytes]:
        while size > 0:
            data = self.rfile.read(min(size, MAX_BODY))
            if not data:
                raise ConnectionError(f"the client closed the connection with {size} bytes of its request to come")
            size -= len(data)
            yield data

    # -- answering

    def _serve(self) -> None:
        """Serve one request of any method."""
        try:
            body = self._read_body()
        except ValueError as error:
            self.send_error(HTTPStatus.BAD_REQUEST, explain=str(error))
            return
        started = time.monotonic()
        info = RequestInfo(self.command.lower(), self.path.partition("?")[0])
        try:
            request = self._request(body)
            info = request.info
            outcome = self._with_faults(request)
        except StatusError as error:
            outcome = _failure(error)
        except ResetConnectionError:
            self._record(info, started, 0)
            raise
        self._record(info, started, outcome.code if isinstance(outcome, ApiResponse) else HTTPStatus.OK)
        if isinstance(outcome, ApiResponse):
            self._send(outcome)
        else:
            self._stream(outcome, info)
        if self.service.stopping.is_set():
            self.close_connection = True

    # http.server looks for these names.
    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _serve  # noqa: N815

    def _request(self, body: bytes | None) -> ReceivedRequest:
        """Return the request; `StatusError` 413 if the body was too large, 405 if the resource has no such verb."""
        if body is None:
            raise statuses.too_large(MAX_BODY)
        info = RequestInfo.of(self.service.store.catalog, self.command, self.path)
        content_type = self.headers.get("Content-Type", "").partition(";")[0].strip()
        return ReceivedRequest(info, body, content_type, self._user_agent, self.headers.get("Accept", ""))

    def _with_faults(self, request: ReceivedRequest) -> ApiResponse | Watcher:
        effects = self.service.faults.hit(request.info)
        self._before(effects)
        self._authenticate()
        outcome = self._outcome(request)
        if any(isinstance(effect, Reset) for effect in effects):
            if isinstance(outcome, Watcher):
                self.service.store.unwatch(outcome)
            raise ResetConnectionError
        return outcome

    def _before(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Delay):
                self.service.stopping.wait(effect.seconds)
            elif isinstance(effect, Reject):
                raise effect.error
            elif not effect.after_serving:
                raise ResetConnectionError

    def _authenticate(self) -> None:
        token = self.service.token
        if token is not None and self.headers.get("Authorization") != f"Bearer {token}":
            raise statuses.unauthorized()

    def _outcome(self, request: ReceivedRequest) -> ApiResponse | Watcher:
        info, handlers = request.info, self.service.handlers
        if info.resource:
            if info.verb == "watch":
                return handlers.open_watch(info, info.resource)
            return handlers.handle(request, info.resource)
        if info.path.rstrip("/") in resources.HEALTH_PATHS:
            return ApiResponse(200, b"ok", "text/plain")
        document = resources.discovery(self.service.store.catalog, info.path, self.service.git_version)
        if document is None:
            return ApiResponse(404, b"404 page not found\n", "text/plain; charset=utf-8")
        return ApiResponse(200, json.dumps(document).encode())

    def _send(self, response: ApiResponse) -> None:
        self._send_head(response.code, response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def _send_head(self, code: int, content_type: str) -> None:
        self.send_response_only(code)
        self.send_header("Content-Type", content_type)

    # -- watches

    def _stream(self, watcher: Watcher, info: RequestInfo) -> None:
        self.service.add_stream(watcher, self.connection)
        try:
            self._send_head(HTTPStatus.OK, JSON_TYPE)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._send_events(watcher, info)
            self._send_chunk(b"")
        finally:
            self.service.remove_stream(watcher)

    def _send_events(self, watcher: Watcher, info: RequestInfo) -> None:
        self.wfile.flush()
        bookmarks = info.flag("allowWatchBookmarks")
        now = quiet_since = time.monotonic()
        ends = now + (info.number("timeoutSeconds") or float("inf"))
        while now < ends:
            event = watcher.next(min(_CLIENT_CHECK_SECONDS, ends - now))
            now = time.monotonic()
            if event:
                if event.type != "BOOKMARK" or bookmarks:
                    self._send_chunk(event.line)
                quiet_since = now
            elif watcher.closed:
                return
            elif _readable(self.connection):
                # A client sends nothing during a watch: this is the end of its side of the connection.
                raise ResetConnectionError
            elif bookmarks and now - quiet_since >= self.service.bookmark_seconds:
                self.service.store.bookmark(watcher)

    def _send_chunk(self, data: bytes) -> None:
        """Send one chunk of a streamed body; empty data is the last one."""
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    # -- log

    @property
    def _user_agent(self) -> str:
        return str(self.headers.get("User-Agent", ""))

    def _record(self, info: RequestInfo, started: float, code: int) -> None:
        seconds = time.monotonic() - started
        self.service.log.append(RequestRecord(info, self._user_agent, code, started, seconds))


def _length(text: str, base: int) -> int:
    """Return the length of a body or chunk; ValueError if it is not a number."""
    try:
        return int(text.strip(), base)
    except ValueError:
        raise ValueError(f"body length {text[:20]!r} is not a number") from None


def _failure(error: StatusError) -> ApiResponse:
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    return ApiResponse(error.code, json.dumps(error.status).encode(), headers=headers)


def _readable(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(0))


def shut(connection: socket.socket, how: int) -> None:
    """Shut a connection down; no error if the other side was faster."""
    # Not connection.shutdown(): after that the serving thread would go on without encryption on a TLS socket.
    with suppress(OSError):
        socket.socket.shutdown(connection, how)
