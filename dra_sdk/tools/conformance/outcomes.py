"""How a check ends if the driver does not pass it, and the calls that are recorded as evidence.

A check returns if the driver keeps its contract. Otherwise it raises one of the exceptions here.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from dra_sdk.tools.simulator.kubelet.calls import CallResult, Exchange

RECORDED = 8
"""Number of calls that are kept as evidence for one check."""


class CheckFailedError(Exception):
    """The driver breaks the contract; `evidence` holds named JSON values that show it."""

    def __init__(self, reason: str, **evidence: Any) -> None:
        super().__init__(reason)
        self.evidence = evidence


class NotApplicableError(Exception):
    """The driver has nothing that the check is about."""


class NotRunError(Exception):
    """This run cannot decide whether the driver passes."""


def expect(condition: object, reason: str, **evidence: Any) -> None:
    """Raise CheckFailedError unless the condition is true."""
    if not condition:
        raise CheckFailedError(reason, **evidence)


def expect_ok(answer: CallResult, call: str) -> None:
    """Raise CheckFailedError with the name of a call unless its answer is OK."""
    expect(answer.ok, f"{call}: {answer.status}")


class Recorder:
    """Keeps the latest exchanges, oldest first. Thread-safe."""

    def __init__(self, size: int = RECORDED) -> None:
        self._lock = threading.Lock()
        self._exchanges: deque[Exchange] = deque(maxlen=size)

    def add(self, exchange: Exchange) -> None:
        """Record an exchange; drops the oldest one if there are too many."""
        with self._lock:
            self._exchanges.append(exchange)

    def take(self) -> list[Exchange]:
        """Return the exchanges since the last call of `take`, and forget them."""
        with self._lock:
            exchanges = list(self._exchanges)
            self._exchanges.clear()
        return exchanges
