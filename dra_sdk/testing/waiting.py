"""Wait for what another thread or another process does: until it is so, not for a time."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import Final, TypeVar

T = TypeVar("T")
LONG: Final = 50.0
"""Seconds after which something hangs: nothing waits that long unless it is broken, on however busy a machine.

Less than the 60 s after which pytest ends a test, and all others of its process with it.
"""


def wait(check: Callable[[], T], seconds: float = LONG) -> T:
    """Return what `check` gives as soon as it is true; AssertionError with what it gave last."""
    deadline = monotonic() + seconds
    while not (result := check()):
        assert monotonic() < deadline, f"not within {seconds:g} s: {result!r}"
        sleep(0.01)
    return result
