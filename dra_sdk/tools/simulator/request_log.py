"""What was asked of the API server over HTTP, for tests and benchmarks ("no traffic when idle but the watch")."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from fnmatch import fnmatchcase

REMEMBERED = 100_000


@dataclass(frozen=True)
class RequestRecord:
    """One request. `verb` is the API verb, or the HTTP method in lower case for paths that are no resource.

    `code` is the HTTP status of the answer, 0 where the connection was dropped instead. `started` is by
    `time.monotonic()`, `seconds` how long serving took; a watch is recorded once it is open.
    """

    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    path: str
    user_agent: str
    code: int
    started: float
    seconds: float


class RequestLog:
    """The latest requests, oldest first. Thread-safe."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._lock = threading.Lock()
        self._records: deque[RequestRecord] = deque(maxlen=remembered)

    def append(self, record: RequestRecord) -> None:
        """Adds a record."""
        with self._lock:
            self._records.append(record)

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._records.clear()

    def records(self, verb: str = "*", resource: str = "*", *, since: float = 0.0) -> list[RequestRecord]:
        """The records of this verb and resource (shell patterns) that started at `since` or later."""
        with self._lock:
            found = list(self._records)
        return [
            record
            for record in found
            if record.started >= since and fnmatchcase(record.verb, verb) and fnmatchcase(record.resource, resource)
        ]

    def mark(self) -> float:
        """Now, as `since` of a later `records`."""
        return time.monotonic()
