"""A GET without the HTTP library's costs, for every prepare waits for one.

Connections, TLS and credentials are the library's. Answers with a Content-Length are read here, and those in chunks, as
a Go server sends whatever is longer than 2 KiB; for others (an encoding, trailers) None is returned and the caller asks
again in the ordinary way. Source: RFC 9112.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import socket

    from urllib3 import HTTPConnectionPool

_CHUNK: Final = 65536
_LONGEST_HEAD: Final = 65536
_IDLE: Final = 8  # connections that are kept
_REQUEST_TIMEOUT: Final = 408
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*(?:\r\n|$)")
_IN_CHUNKS: Final = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*(?:\r\n|$)")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")


class BrokenOffError(Exception):
    """The connection ended before a whole answer; if it was a kept one, it may have been dead for long."""


@dataclass(frozen=True, slots=True)
class QuickAnswer:
    """A whole answer; the names are those of the library's responses.

    `head` ends before the empty line. After the `last` answer the server closes the connection.
    """

    status: int
    head: bytes
    data: bytes
    last: bool = False

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields, found under any spelling."""
        from urllib3 import HTTPHeaderDict  # noqa: PLC0415 (loaded with the client)

        lines = (line.partition(":") for line in self.head.decode("latin-1").split("\r\n")[1:])
        return HTTPHeaderDict({name: value.strip() for name, _, value in lines})

    def close(self) -> None:
        """Nothing is open."""

    def release_conn(self) -> None:
        """Nothing is held."""


class QuickGets:
    """GETs of one server with the same header fields. Safe for threads.

    It keeps connections of its own, without a look at whether they live, which their next answer tells: those of the
    library's pool are behind a queue, two locks and a system call.
    """

    def __init__(
        self, pool: HTTPConnectionPool, root: str, fields: Mapping[str, str], connect_timeout: float, timeout: float
    ) -> None:
        self._pool = pool
        self._root = root
        self._fields = fields
        self._timeouts = connect_timeout, timeout
        self._idle: list[Any] = []
        self._closed = False
        self._tail: tuple[str | None, bytes] = "", b""

    def get(self, path: str, authorization: str | None) -> QuickAnswer | None:
        """The answer to GET `path`; None where it is not a plain one.

        Raises BrokenOffError where a new connection breaks off too, TimeoutError, or what the library raises when it
        connects.
        """
        request, kept = self._request(path, authorization), self._kept()
        if kept is not None:
            try:
                return self._ask(kept, request)
            except BrokenOffError:  # it was dead, and so may be the others
                self._drop_idle()
            except TimeoutError:
                self._drop_idle()
                raise
        return self._ask(self._connect(), request)

    def _ask(self, connection: Any, request: bytes) -> QuickAnswer | None:
        answer = None
        try:
            connection.sock.sendall(request)
            answer = _answer(connection.sock)
        except (OSError, EOFError) as error:
            if isinstance(error, TimeoutError) and error.errno is None:
                raise  # we have waited; with a number the kernel had found the connection dead before
            raise BrokenOffError(f"Connection aborted: {error}") from error
        finally:
            if answer is None or answer.last or self._closed or len(self._idle) >= _IDLE:
                connection.close()  # an answer may be half read: nobody can use this connection again
            else:
                self._idle.append(connection)
        return answer

    def close(self) -> None:
        """Close idle connections, and others when their answer is read."""
        self._closed = True
        self._drop_idle()

    def _connect(self) -> Any:
        connection: Any = self._pool._new_conn()  # noqa: SLF001 (the library has no public name for it)
        connection.timeout, timeout = self._timeouts
        try:
            connection.connect()
            connection.sock.settimeout(timeout)
        except BaseException:
            connection.close()
            raise
        return connection

    def _kept(self) -> Any:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _drop_idle(self) -> None:
        while (connection := self._kept()) is not None:
            connection.close()

    def _request(self, path: str, authorization: str | None) -> bytes:
        token, tail = self._tail
        if not tail or token != authorization:
            tail = self._fields_with(authorization)
            self._tail = authorization, tail
        return f"GET {self._root}{_one_line(path)} HTTP/1.1\r\n".encode("latin-1") + tail

    def _fields_with(self, authorization: str | None) -> bytes:
        host = f"[{self._pool.host}]" if ":" in self._pool.host else self._pool.host
        fields = {"Host": f"{host}:{self._pool.port}", **self._fields}
        if authorization:
            fields["Authorization"] = authorization
        return "".join(f"{name}: {_one_line(value)}\r\n" for name, value in fields.items()).encode("latin-1") + b"\r\n"


def _one_line(text: str) -> str:
    return text.replace("\r", "").replace("\n", "")


def _answer(sock: socket.socket) -> QuickAnswer | None:
    answer = _read(sock)
    if answer and answer.status == _REQUEST_TIMEOUT:  # said to an idle connection, before we asked
        raise EOFError("the server had waited too long")
    return answer


def _read(sock: socket.socket) -> QuickAnswer | None:
    received = _more(sock)
    while (end := received.find(b"\r\n\r\n")) < 0:
        if len(received) > _LONGEST_HEAD:
            return None
        received += _more(sock)
    head, status = received[:end], received[9:12]
    if not head.startswith(b"HTTP/1.1 ") or not status.isdigit():
        return None
    fields = head.lower()
    body = _body(sock, fields, bytearray(received[end + 4 :]))
    return None if body is None else QuickAnswer(int(status), head, body, b"\r\nconnection: close" in fields)


def _body(sock: socket.socket, fields: bytes, begun: bytearray) -> bytes | None:
    """The body that `begun` is the beginning of; None where it has another form, or is not the end."""
    length, encodings = _LENGTH.search(fields), fields.count(b"encoding:")
    if length and not encodings:
        _fill(sock, begun, int(length[1]))
        return bytes(begun) if len(begun) == int(length[1]) else None
    if _IN_CHUNKS.search(fields) and encodings == 1 and b"content-length:" not in fields:
        return _chunks(sock, begun)
    return None


def _chunks(sock: socket.socket, received: bytearray) -> bytes | None:
    body, size = bytearray(), -1
    while size:
        while (end := received.find(b"\r\n")) < 0:
            if len(received) > _LONGEST_HEAD:
                return None
            received += _more(sock)
        found = _CHUNK_SIZE.fullmatch(received, 0, end)
        if not found:
            return None
        size, begin = int(found[1], 16), end + 2
        _fill(sock, received, begin + size + 2)
        if received[begin + size : begin + size + 2] != b"\r\n":  # after the last chunk this may be a trailer
            return None
        body += received[begin : begin + size]
        del received[: begin + size + 2]
    return None if received else bytes(body)


def _fill(sock: socket.socket, received: bytearray, size: int) -> None:
    while len(received) < size:
        received += _more(sock)


def _more(sock: socket.socket) -> bytes:
    more = sock.recv(_CHUNK)
    if not more:
        raise EOFError("the server closed the connection")
    return more
