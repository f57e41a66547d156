"""Just enough HTTP/1.1 for an API server: keep-alive, bodies with a length or in chunks, streamed answers.

Written out instead of `http.server` because benchmarks talk to it: a request costs tens of microseconds here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MAX_BODY = 3 * 1024 * 1024
_MAX_LINE = 64 * 1024
_MAX_HEADERS = 200
_REQUEST_PARTS = 3
JSON_TYPE = "application/json"


class BadRequestError(Exception):
    """What came over the connection is not HTTP; the connection is dropped."""


@dataclass(frozen=True)
class Request:
    """One request. Header names are in lower case; `oversized` tells that the body was over 3 MiB and thrown away."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes
    keep_alive: bool
    oversized: bool = False


@dataclass(frozen=True)
class Response:
    """One answer with a body of known length."""

    code: int
    body: bytes
    content_type: str = JSON_TYPE
    headers: Mapping[str, str] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """Head and body in one piece, so that they leave in one packet."""
        return head(self.code, self.content_type, {"Content-Length": str(len(self.body)), **self.headers}) + self.body


def head(code: int, content_type: str, headers: Mapping[str, str]) -> bytes:
    """Status line and headers."""
    lines = [f"HTTP/1.1 {code} {HTTPStatus(code).phrase}", f"Content-Type: {content_type}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk(data: bytes) -> bytes:
    """One chunk of a streamed body; empty data makes the last one."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def read_request(stream: BinaryIO, send: Callable[[bytes], object]) -> Request | None:
    """The next request on a connection, or None where the client closed it; `BadRequestError` for what is not HTTP/1.x.

    `send` is only used to ask for the body where the client waits to be asked.
    """
    line = stream.readline(_MAX_LINE)
    if not line:
        return None
    parts = line.decode("latin-1").rstrip("\r\n").split(" ")
    if len(parts) != _REQUEST_PARTS or not parts[2].startswith("HTTP/1."):
        raise BadRequestError(f"not an HTTP/1.1 request line: {line[:80]!r}")
    headers = _read_headers(stream)
    if headers.get("expect", "").lower() == "100-continue":
        send(b"HTTP/1.1 100 Continue\r\n\r\n")
    connection = headers.get("connection", "").lower()
    keep_alive = connection != "close" and (parts[2] == "HTTP/1.1" or connection == "keep-alive")
    pieces: list[bytes] = []
    size = 0
    for piece in _body_pieces(stream, headers):
        size += len(piece)
        # Reading on past the limit keeps the connection usable, so that the client gets to see the answer.
        pieces = [*pieces, piece] if size <= MAX_BODY else []
    return Request(parts[0], parts[1], headers, b"".join(pieces), keep_alive, oversized=size > MAX_BODY)


def _read_headers(stream: BinaryIO) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(_MAX_HEADERS):
        line = stream.readline(_MAX_LINE)
        if line in {b"\r\n", b"\n"}:
            return headers
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon:
            raise BadRequestError(f"not a header: {line[:80]!r}")
        headers[name.strip().lower()] = value.strip()
    raise BadRequestError(f"more than {_MAX_HEADERS} headers")


def _body_pieces(stream: BinaryIO, headers: Mapping[str, str]) -> Iterator[bytes]:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := _number(stream.readline(_MAX_LINE).partition(b";")[0].strip().decode("latin-1"), 16):
            yield from _read_exactly(stream, size)
            stream.readline(_MAX_LINE)
        stream.readline(_MAX_LINE)
    else:
        yield from _read_exactly(stream, _number(headers.get("content-length", "0"), 10))


def _number(text: str, base: int) -> int:
    try:
        return int(text, base)
    except ValueError:
        raise BadRequestError(f"body length {text[:20]!r} is not a number") from None


def _read_exactly(stream: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0:
        data = stream.read(min(size, MAX_BODY))
        if not data:
            raise BadRequestError(f"connection closed with {size} bytes of body to come")
        size -= len(data)
        yield data
