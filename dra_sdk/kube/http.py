"""HTTP/1.1 to one server: kept connections, a deadline for the whole answer, a limit of its size.

`httptools` parses the answers and `ssl` secures the sockets; this module connects both. A socket's own timeout limits
one `recv` only, so a server that sends a byte from time to time would hold a thread for hours. Here no wait is longer
than the time until the deadline. Source: RFC 9112.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from threading import Event
from time import monotonic
from typing import Final

from httptools import HttpParserError, HttpResponseParser

_CHUNK: Final = 1 << 16
_KEPT: Final = 8  # idle connections
_REQUEST_TIMEOUT: Final = 408
_FINAL: Final = 200  # the lowest status that is not interim
_SHORTEST: Final = 0.001  # seconds; a timeout of 0 would make the socket non-blocking
_KEEPALIVE: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),  # after about 75 s a dead peer is noticed
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class HttpError(Exception):
    """No complete answer: the connection failed, the deadline passed, or the answer is too long or malformed."""


class DroppedError(HttpError):
    """A connection ended before the first byte of the answer."""


class HttpTimeoutError(HttpError):
    """The deadline passed before the answer was whole."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where to connect.

    host: a name or an address, without brackets.
    port: the TCP port.
    tls: the TLS context, None for plain HTTP.
    tls_name: the name that the certificate must have and that SNI sends; by default `host`.
    proxy: host and port of an HTTP proxy that gets a CONNECT request. None: a direct connection.
    proxy_headers: header fields of the CONNECT request, such as Proxy-Authorization.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    tls_name: str | None = None
    proxy: tuple[str, int] | None = None
    proxy_headers: Mapping[str, str] | None = None

    @property
    def address(self) -> str:
        """`host:port` as the Host header has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def connect(self, timeout: float) -> socket.socket:
        """Open a connection; raises OSError (of which ssl.SSLError is one) or HTTPException from a proxy."""
        if self.proxy is None:
            plain = socket.create_connection((self.host, self.port), timeout)
        else:
            tunnel = HTTPConnection(*self.proxy, timeout=timeout)
            tunnel.set_tunnel(self.host, self.port, dict(self.proxy_headers or {}))
            tunnel.connect()
            plain = tunnel.sock
        try:
            for option in _KEEPALIVE:
                plain.setsockopt(*option)
            if self.tls is None:
                return plain
            return self.tls.wrap_socket(plain, server_hostname=self.tls_name or self.host)
        except BaseException:
            plain.close()
            raise


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request.

    method: such as GET.
    target: path and query, quoted.
    headers: header fields other than Host and Content-Length.
    body: the content, None for none.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None

    def encode(self, address: str) -> bytes:
        """Return the bytes on the wire. HttpError if a field contains a line break, or what is not Latin-1."""
        lines = [f"{self.method} {self.target} HTTP/1.1", f"Host: {address}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if self.body is not None:
            lines.append(f"Content-Length: {len(self.body)}")
        text = "\n".join(lines)
        if text.count("\n") != len(lines) - 1 or "\r" in text:
            raise HttpError("a header field of the request holds a line break")
        try:
            head = text.replace("\n", "\r\n").encode("latin-1")
        except UnicodeEncodeError:  # which has the text, and so perhaps a token
            raise HttpError("a header field of the request holds a character that is not Latin-1") from None
        return head + b"\r\n\r\n" + (self.body or b"")


class HttpResponse:
    """An answer whose header fields were read. `read` returns the whole body, `pieces` yields it as it arrives.

    status: the HTTP status.
    headers: the header fields, names in lower case.
    is_reusable: whether the answer was read and the connection can be used for another request.
    """

    def __init__(self, sock: socket.socket, limit: int) -> None:
        self.status = 0
        self.is_reusable = False
        self.headers: dict[str, str] = {}
        self._socket = sock
        self._limit = limit
        self._parser = HttpResponseParser(self)
        self._size = 0
        self._pieces: list[bytes] = []
        self._has_head = self._is_whole = False
        self._interrupted = Event()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header field from the parser, or a trailer field, which is ignored."""
        if not self._has_head:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Take the end of the header fields from the parser."""
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= _FINAL

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body from the parser."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """Take the end of the answer from the parser."""
        if self._has_head:
            self._is_whole = True
            self.is_reusable = self._parser.should_keep_alive()  # the parser knows it only here
        else:
            self.headers.clear()  # an interim answer (1xx)

    def read_head(self, deadline: float) -> None:
        """Read up to the end of the header fields, by a time of `time.monotonic`. Raises HttpError."""
        received = self._receive(deadline, before=DroppedError)
        self._feed(received)
        while not self._has_head:
            self._feed(self._receive(deadline))

    def read(self, deadline: float) -> bytes:
        """Return the whole body, by a time of `time.monotonic`. Raises HttpError."""
        while not self._is_whole:
            self._feed(self._receive(deadline))
        return b"".join(self._pieces)

    def pieces(self, timeout: float) -> Iterator[bytes]:
        """Yield the body as it arrives, until `interrupt`; a piece may take `timeout` seconds. Raises HttpError."""
        while True:
            pieces, self._pieces, self._size = self._pieces, [], 0
            yield from pieces
            if self._is_whole or self._interrupted.is_set():
                return
            try:
                self._feed(self._receive(monotonic() + timeout))
            except HttpError:
                if self._interrupted.is_set():
                    return
                raise

    def interrupt(self) -> None:
        """Make a thread that waits in `pieces` return; callable from any thread. That thread closes the connection."""
        self._interrupted.set()
        with suppress(OSError):  # the server closed it first
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _receive(self, deadline: float, before: type[HttpError] | None = None) -> bytes:
        """Return the next bytes; empty at the end of a body that ends with its connection."""
        dead = before or HttpError
        try:
            self._socket.settimeout(max(_SHORTEST, deadline - monotonic()))
            received = self._socket.recv(_CHUNK)
        except OSError as error:
            raise _timed_out(error, "the answer was not complete in time", dead) from error
        except ValueError as error:  # another thread shut down a TLS connection
            raise HttpError(str(error)) from error
        if not received and not self._ends_with_connection:
            raise dead("the server closed the connection")
        return received

    @property
    def _ends_with_connection(self) -> bool:
        return self._has_head and not {"content-length", "transfer-encoding"} & self.headers.keys()

    def _feed(self, received: bytes) -> None:
        if not received:
            self._is_whole = True
            return
        self._size += len(received)
        if self._size > self._limit:
            raise HttpError(f"the answer is longer than {self._limit} bytes")
        try:
            self._parser.feed_data(received)
        except HttpParserError as error:
            raise HttpError(f"the answer is not HTTP: {error}") from error


class ConnectionPool:
    """Sends requests to one server over connections that it keeps. Safe for threads.

    server: where to connect.
    connect_timeout: seconds that connecting, with TLS, may take.
    """

    def __init__(self, server: Server, connect_timeout: float) -> None:
        self._server = server
        self._connect_timeout = connect_timeout
        self._idle: list[socket.socket] = []
        self._closed = False

    def request(self, request: HttpRequest, deadline: float, limit: int) -> tuple[HttpResponse, bytes]:
        """Return the answer and its whole body, of at most `limit` bytes, by `deadline` (of `time.monotonic`).

        A GET is sent again over a new connection if a kept one is dead. Raises HttpError.
        """
        kept = self._take_idle()
        if kept is not None:
            try:
                response, body = self._exchange(kept, request, deadline, limit)
            except DroppedError:
                self.drop_idle()  # which may be dead too
                if request.method != "GET":
                    raise
            except HttpTimeoutError:
                self.drop_idle()
                raise
            else:
                if response.status != _REQUEST_TIMEOUT:  # a server sends 408 to a connection that was idle too long
                    return response, body
        return self._exchange(self._connect(deadline), request, deadline, limit)

    def stream(self, request: HttpRequest, deadline: float, limit: int) -> HttpResponse:
        """Return the answer with only its header fields read; the caller closes its connection. Raises HttpError."""
        sock = self._connect(deadline)
        try:
            return self._send(sock, request, deadline, limit)
        except BaseException:
            sock.close()
            raise

    def close(self) -> None:
        """Close idle connections now, and used ones when their answer is read."""
        self._closed = True
        self.drop_idle()

    def drop_idle(self) -> None:
        """Close idle connections."""
        while (sock := self._pop()) is not None:
            sock.close()

    def _exchange(
        self, sock: socket.socket, request: HttpRequest, deadline: float, limit: int
    ) -> tuple[HttpResponse, bytes]:
        try:
            response = self._send(sock, request, deadline, limit)
            body = response.read(deadline)
        except BaseException:
            sock.close()
            raise
        if response.is_reusable and not self._closed and len(self._idle) < _KEPT:
            self._idle.append(sock)
        else:
            sock.close()
        return response, body

    def _send(self, sock: socket.socket, request: HttpRequest, deadline: float, limit: int) -> HttpResponse:
        content = request.encode(self._server.address)
        try:
            sock.settimeout(max(_SHORTEST, deadline - monotonic()))
            sock.sendall(content)
        except OSError as error:
            raise _timed_out(error, "the request could not be sent in time", DroppedError) from error
        response = HttpResponse(sock, limit)
        response.read_head(deadline)
        return response

    def _connect(self, deadline: float) -> socket.socket:
        try:
            return self._server.connect(max(_SHORTEST, min(self._connect_timeout, deadline - monotonic())))
        except (OSError, HTTPException) as error:
            raise HttpError(_reason(error)) from error

    def _take_idle(self) -> socket.socket | None:
        """Return a live idle connection, None without any. One that is readable was closed by the server."""
        while (sock := self._pop()) is not None and _is_readable(sock):
            sock.close()
        return sock

    def _pop(self) -> socket.socket | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None


def _is_readable(sock: socket.socket) -> bool:
    """Return whether a read would return at once: there is data, or the end."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _timed_out(error: OSError, message: str, dead: type[HttpError]) -> HttpError:
    """Return HttpTimeoutError for our own deadline, `dead` for others, such as the kernel's ETIMEDOUT with an errno."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return HttpTimeoutError(message)
    return dead(_reason(error))


def _reason(error: Exception) -> str:
    """Return why a connection failed: `Connection refused`, `timed out`, or the problem of a certificate."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
