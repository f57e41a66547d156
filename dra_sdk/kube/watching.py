"""A watch: the stream of changes of a collection.

Source: the watch semantics of the Kubernetes API: one JSON object a line, `{"type": ADDED | MODIFIED | DELETED |
BOOKMARK | ERROR, "object": ...}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from threading import Lock
from typing import Any, Final

from dra_sdk.errors import UnreachableError
from dra_sdk.kube.http import HttpError, HttpResponse
from dra_sdk.kube.status import error_of_event
from dra_sdk.model import JSON

_LONGEST_EVENT: Final = 16 << 20  # bytes


class Watch:
    """An open watch, to be iterated by one thread; implements `dra_sdk.kube.api.EventStream`.

    It raises after `silence` seconds without a byte; the server ends a watch earlier.
    """

    def __init__(self, response: HttpResponse, action: str, silence: float) -> None:
        self._response = response
        self._action = action
        self._silence = silence
        self._lock = Lock()
        self._reading = False
        self._closed = False

    def __iter__(self) -> Iterator[JSON]:
        """Yield each event; GoneError if the resourceVersion is too old, UnreachableError if the watch broke off."""
        with self._lock:
            self._reading = not self._closed
        try:
            if self._reading:
                for line in self._lines():
                    yield self._event(line)
        finally:
            with self._lock:
                self._reading = False
                self._closed = True
            self._response.close()

    def close(self) -> None:
        """End the watch at once: a thread that waits for the next event stops waiting. Safe from any thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._reading:
                self._response.interrupt()  # the reading thread wakes up and closes the connection
            else:
                self._response.close()

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        for piece in self._pieces():
            *lines, rest = (rest + piece).split(b"\n")
            yield from (line for line in lines if line.strip())
            if len(rest) > _LONGEST_EVENT:
                raise UnreachableError(f"{self._action}: an event is longer than {_LONGEST_EVENT} bytes")
        if rest.strip() and not self._closed:
            raise UnreachableError(f"{self._action}: broke off in the middle of an event")

    def _pieces(self) -> Iterator[bytes]:
        try:
            yield from self._response.pieces(self._silence)
        except HttpError as error:
            raise UnreachableError(f"{self._action}: broke off: {error}") from error

    def _event(self, line: bytes) -> JSON:
        try:
            event: Any = json.loads(line)
            kind, item = event["type"], event["object"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UnreachableError(f"{self._action}: the server sent {line[:80]!r}, which is not an event") from error
        if kind == "ERROR":
            raise error_of_event(self._action, item)
        if not isinstance(kind, str) or not isinstance(item, dict):
            raise UnreachableError(f"{self._action}: the server sent {line[:80]!r}, which is not an event")
        return {"type": kind, "object": item}
