"""A watch: the stream of changes of a collection.

Source: the watch semantics of the Kubernetes API: one JSON object a line, `{"type": ADDED | MODIFIED | DELETED |
BOOKMARK | ERROR, "object": ...}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from threading import Event, Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from dra_sdk.errors import UnreachableError
from dra_sdk.kube.status import error_of_event
from dra_sdk.kube.transport import plain
from dra_sdk.model import JSON

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

_CHUNK: Final = 1 << 16


class Watch:
    """An open watch, to be iterated by one thread; implements `dra_sdk.kube.api.EventStream`."""

    def __init__(self, response: BaseHTTPResponse, action: str) -> None:
        self._response = response
        self._action = action
        self._lock = Lock()
        self._reading = False
        self._closed = Event()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[JSON]:
        """Yield each event; GoneError where the resourceVersion is too old, UnreachableError where it broke off."""
        with self._lock:
            self._reading = not self._closed.is_set()
        try:
            for line in self._lines():
                yield self._event(line)
        finally:
            with self._lock:
                self._reading = False
                self._closed.set()
                self._response.close()

    def close(self) -> None:
        """End the watch at once: a thread that waits for the next event stops waiting. Safe from any thread."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            if self._reading:
                with suppress(OSError, RuntimeError):  # the server was quicker: reset, or ended in good order
                    self._response.shutdown()  # wakes the reader, which then closes the connection itself
            else:
                self._response.close()

    def _lines(self) -> Iterator[bytes]:
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 (loaded with the client)

        rest = b""
        while not self._closed.is_set():
            try:
                got = self._response.read1(_CHUNK)
            except (HTTPError, OSError, ValueError) as error:
                if self._closed.is_set():
                    return
                raise UnreachableError(f"{self._action}: broke off: {plain(error)}") from error
            if not got:
                break
            *lines, rest = (rest + got).split(b"\n")
            yield from (line for line in lines if line.strip())
        if rest.strip() and not self._closed.is_set():
            raise UnreachableError(f"{self._action}: broke off in the middle of an event")

    def _event(self, line: bytes) -> JSON:
        try:
            event: Any = json.loads(line)
            kind, item = event["type"], event["object"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UnreachableError(f"{self._action}: the server sent no event but {line[:80]!r}") from error
        if kind == "ERROR":
            raise error_of_event(self._action, item)
        return {"type": kind, "object": item}
