"""A GET without the HTTP library's costs, which are a third of the client's time on every prepare's way.

Connections, TLS and credentials are the library's. Only answers with a Content-Length are read here; for others
(chunks, an encoding) None is returned and the caller asks again in the ordinary way. Source: RFC 9112.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket

    from urllib3 import HTTPConnectionPool

_CHUNK: Final = 65536
_LONGEST_HEAD: Final = 65536
_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class QuickAnswer:
    """A whole answer; the names are those of the library's responses. Names in `fields` are in lower case."""

    status: int
    fields: Mapping[str, str]
    data: bytes

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields, found under any spelling."""
        from urllib3 import HTTPHeaderDict  # noqa: PLC0415 (loaded with the client)

        return HTTPHeaderDict(self.fields)

    def close(self) -> None:
        """Nothing is open."""

    def release_conn(self) -> None:
        """Nothing is held."""


def quick_get(pool: HTTPConnectionPool, path: str, headers: Mapping[str, str], timeout: float) -> QuickAnswer | None:
    """The answer to GET `path`; None where it is not a plain one. Raises OSError or the library's HTTPError."""
    from urllib3.exceptions import ProtocolError  # noqa: PLC0415 (loaded with the client)

    connection = pool._get_conn(timeout=timeout)  # noqa: SLF001 (the library has no public name for it)
    answer = None
    try:
        if getattr(connection, "sock", None) is None:
            connection.connect()
        sock: socket.socket = connection.sock  # type: ignore[attr-defined]
        sock.settimeout(timeout)
        sock.sendall(_request(pool, path, headers))
        answer = _read(sock)
    except (ConnectionError, EOFError) as error:
        raise ProtocolError(f"Connection aborted: {error}") from error
    finally:
        if answer is None or answer.fields.get("connection") == "close":
            connection.close()  # an answer may be half read: nobody can use this connection again
        pool._put_conn(connection)  # noqa: SLF001
    return answer


def _request(pool: HTTPConnectionPool, path: str, headers: Mapping[str, str]) -> bytes:
    host = f"[{pool.host}]" if ":" in pool.host else pool.host
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}:{pool.port}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(line.replace("\r", "").replace("\n", "") for line in lines) + "\r\n\r\n").encode("latin-1")


def _read(sock: socket.socket) -> QuickAnswer | None:
    received = b""
    while (end := received.find(b"\r\n\r\n")) < 0:
        if len(received) > _LONGEST_HEAD:
            return None
        received += _more(sock)
    first, *lines = received[:end].decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    status, length = first.partition(" ")[2][:3], headers.get("content-length", "")
    if (
        not first.startswith("HTTP/1.1 ")
        or not status.isdecimal()
        or not (length.isdecimal() and len(length) <= _DIGITS)
        or headers.keys() & {"content-encoding", "transfer-encoding"}
    ):
        return None
    body = received[end + 4 :]
    while len(body) < int(length):
        body += _more(sock)
    return QuickAnswer(int(status), headers, body) if len(body) == int(length) else None


def _more(sock: socket.socket) -> bytes:
    more = sock.recv(_CHUNK)
    if not more:
        raise EOFError("the server closed the connection")
    return more
