"""What was said between the kit and the driver, kept so that a failure can be shown and not only told."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

KEPT = 8


@dataclass(frozen=True)
class Exchange:
    """One call: the method's short name, the request and the answer as JSON, the seconds it took."""

    method: str
    request: Any
    answer: Any
    seconds: float

    def encoded(self) -> dict[str, Any]:
        """For a report."""
        return {"request": self.request, "answer": self.answer, "seconds": round(self.seconds, 4)}


class Recorder:
    """The latest exchanges, oldest first. Thread-safe."""

    def __init__(self, kept: int = KEPT) -> None:
        self._lock = threading.Lock()
        self._exchanges: deque[Exchange] = deque(maxlen=kept)

    def add(self, exchange: Exchange) -> None:
        """Keep an exchange; the oldest gives way."""
        with self._lock:
            self._exchanges.append(exchange)

    def take(self) -> list[Exchange]:
        """What was kept since the last time."""
        with self._lock:
            found = list(self._exchanges)
            self._exchanges.clear()
        return found
