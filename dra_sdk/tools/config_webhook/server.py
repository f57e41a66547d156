"""The HTTPS server of the webhook: certificates that are read again when they change, limits of size and time.

The API server sends POST /validate. /healthz and /readyz are for the probes of its pod. A request that is too large,
too slow or no AdmissionReview gets an HTTP error, and then the failurePolicy of the webhook's configuration decides.
"""

from __future__ import annotations

import json
import logging
import socket
import ssl
import sys
from contextlib import nullcontext
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Any, Final, Self

from dra_sdk.errors import DraError, SettingsError
from dra_sdk.node.http_server import BoundedHttpServer
from dra_sdk.tools.config_webhook.review import ConfigReviewer

log = logging.getLogger(__name__)
PATH: Final = "/validate"
MAX_BODY: Final = 7 << 20
"""Bytes: the object and the one before it. The API server takes objects of 3 MiB."""
LARGE: Final = 128 << 10
"""Bytes: larger requests are read and answered one by one. Those of claims have some kilobytes."""
CONNECTIONS: Final = 256
"""At a time: an API server opens one for each claim that is created at the same moment."""
SECONDS: Final = 10.0
"""For a handshake, and for the body of a request. The API server waits 10 s at most unless it is told otherwise."""
IDLE_SECONDS: Final = 120.0
"""For the next request of a connection. The API server closes one after 90 s: if this side were first, a request might
already be on its way, and the API server does not repeat it."""
_PIECE: Final = 1 << 16
Stamp = tuple[int, int, int]
Answer = tuple[HTTPStatus, str, bytes]
"""Its status, the type of its content, its content."""


class Certificate:
    """The server's certificate and key, read again when one of their files changes.

    A Secret in a pod changes as a whole, by one link. Files that do not fit together leave the previous pair in use.

    certificate: the path of a PEM file: the certificate and those between it and its authority.
    key: the path of a PEM file with its private key.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._lock = Lock()
        try:
            self._stamps = self._stamped()
            self._context = self._read()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise SettingsError(f"certificate {certificate} and key {key} cannot be used: {error}") from error

    def context(self) -> ssl.SSLContext:
        """The context for a new connection."""
        with self._lock:
            try:
                stamps = self._stamped()
                if stamps != self._stamps:
                    self._stamps = stamps  # a pair that is wrong is reported once
                    self._context = self._read()
                    log.info("certificate %s is read again", self._files[0])
            except (OSError, ValueError) as error:
                log.warning("certificate %s cannot be read again, the previous one stays: %s", self._files[0], error)
            return self._context

    def _stamped(self) -> list[Stamp]:
        found = [each.stat() for each in self._files]
        return [(each.st_ino, each.st_mtime_ns, each.st_size) for each in found]

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(*self._files, password=_no_password)
        return context


class WebhookServer:
    """Serves reviews on `host:port` until it is stopped; a context manager. With port 0 the kernel chooses one.

    SettingsError if it cannot listen there. Without host it listens on all addresses of the machine.
    """

    def __init__(self, address: str, certificate: Certificate, reviewer: ConfigReviewer) -> None:
        try:
            self._server = _Server(address, certificate, reviewer)
        except (OSError, ValueError, OverflowError) as error:
            raise SettingsError(f"cannot listen on --address {address!r}: {error}") from error
        self._thread = Thread(target=self._server.serve_forever, name="webhook")

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._server.server_port

    def drain(self, seconds: float) -> None:
        """Go on for `seconds`, while clients leave: each connection ends with its next answer."""
        self._server.is_stopping = True
        sleep(seconds)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take no further connection, answer the requests that have arrived, and close all connections."""
        self._server.is_stopping = True
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.close_connections(SECONDS)


class _Server(BoundedHttpServer):
    """The thread of a connection does the handshake, so that a slow client delays no other."""

    def __init__(self, address: str, certificate: Certificate, reviewer: ConfigReviewer) -> None:
        self.certificate, self.reviewer = certificate, reviewer
        self.is_stopping = False
        # What JSON becomes in memory is 25 times as large, so there is one large text and one document at a time.
        self.reading_large, self.reviewing = Lock(), Lock()
        super().__init__(address, _Handler, CONNECTIONS)

    def get_request(self) -> tuple[socket.socket, Any]:
        """A connection on which the handshake is still to be done."""
        plain, address = super().get_request()
        context = self.certificate.context()
        return context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 (of the library)
        """Log the error; it is none of ours if the client closed the connection or does not trust the certificate."""
        is_clients = isinstance(sys.exception(), OSError)
        log.log(
            logging.DEBUG if is_clients else logging.ERROR, "a request from %s failed", client_address[0], exc_info=True
        )


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # buffered, so that head and body leave in one packet
    server: _Server

    def setup(self) -> None:
        """Do the handshake."""
        self.request.settimeout(SECONDS)
        self.request.do_handshake()
        self.request.settimeout(IDLE_SECONDS)
        self._context = self.request.context
        super().setup()

    def do_GET(self) -> None:
        """Answer the probes."""
        known = self.path.partition("?")[0] in {"/healthz", "/readyz"}
        self._answer(
            HTTPStatus.OK if known else HTTPStatus.NOT_FOUND, "text/plain", b"ok\n" if known else b"not found\n"
        )

    def do_POST(self) -> None:
        """Answer a review."""
        try:
            length = self._length()
            with self.server.reading_large if length > LARGE else nullcontext():
                answer = self._reviewed(self._body(length))
        except _RefusedError as error:
            self.close_connection = True  # what is left of the body would be read as a request
            answer = error.status, "text/plain", f"{error}\n".encode()
        self._answer(*answer)

    def _reviewed(self, body: bytes) -> Answer:
        if self.path.partition("?")[0] != PATH:
            return HTTPStatus.NOT_FOUND, "text/plain", f"reviews are at {PATH}\n".encode()
        try:
            with self.server.reviewing:
                answer = self.server.reviewer.review(json.loads(body))
        except (DraError, ValueError, RecursionError) as error:
            return HTTPStatus.BAD_REQUEST, "text/plain", f"{error}\n".encode()
        return HTTPStatus.OK, "application/json", json.dumps(answer).encode()

    def _length(self) -> int:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > len(str(MAX_BODY)):
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "a request must have a Content-Length")
        if int(length) > MAX_BODY:
            raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {MAX_BODY} bytes")
        return int(length)

    def _body(self, left: int) -> bytes:
        pieces, deadline = [], monotonic() + SECONDS
        while left:
            remaining = deadline - monotonic()
            if remaining <= 0:
                raise _RefusedError(HTTPStatus.REQUEST_TIMEOUT, f"the body did not come within {SECONDS:g} s")
            self.request.settimeout(remaining)
            piece = self.rfile.read1(min(left, _PIECE))
            if not piece:
                raise _RefusedError(HTTPStatus.BAD_REQUEST, "the body ends too early")
            pieces.append(piece)
            left -= len(piece)
        self.request.settimeout(IDLE_SECONDS)
        return b"".join(pieces)

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        if self.server.is_stopping or self.server.certificate.context() is not self._context:
            self.close_connection = True  # the client connects again: to another pod, or with the new certificate
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.server.note_answer(self.request)

    def log_message(self, *_: object) -> None:
        """Log nothing: probes come every few seconds."""


class _RefusedError(Exception):
    """A request that is not read to its end."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


def _no_password() -> str:
    """Keeps OpenSSL from asking on a terminal."""
    raise ValueError("the key has a password")
