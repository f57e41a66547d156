"""Calls of the runtime that wait: for their answer, or for a thread that is left with their request."""

from __future__ import annotations

from threading import Lock
from typing import Final

from dra_sdk.errors import NriError

MAX_CALLS: Final = 256
"""Calls without an answer. A runtime makes one after the other, and each has its answer in time."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of requests whose handlers have not returned, and of all parts of one Synchronize."""
CALL_BYTES: Final = 1024
"""Bytes that a call takes beside its request, about."""


class OpenCalls:
    """Counts the calls of one connection. Safe for threads."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.calls = self.size = 0

    def begin(self, size: int) -> OpenCall:
        """Count a call with a request of `size` bytes. NriError if there is too much, which ends the connection."""
        with self.lock:
            self.calls, self.size = self.calls + 1, self.size + size + CALL_BYTES
            if self.calls > MAX_CALLS:
                raise NriError(f"{self.calls} calls wait for an answer, more than {MAX_CALLS}")
            if self.size > MAX_BYTES:
                raise NriError(f"calls with {self.size} bytes wait, more than {MAX_BYTES}")
        return OpenCall(self, size + CALL_BYTES)


class OpenCall:
    """One of them, until it is answered and its handler has returned."""

    def __init__(self, counted: OpenCalls, size: int) -> None:
        self._counted, self._size, self._waits = counted, size, True

    def answered(self) -> None:
        """Note that it has its answer, also if its handler has not returned."""
        with self._counted.lock:
            self._counted.calls -= self._waits
            self._waits = False

    def ended(self) -> None:
        """Note that its handler has returned."""
        self.answered()
        with self._counted.lock:
            self._counted.size -= self._size
