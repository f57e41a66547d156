"""Waiting for what another process does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
TIMEOUT = 180.0
"""Seconds after which a wait gives up. Nothing takes that long unless it is broken: a busy machine takes ten times as
long as an idle one, and the kubelet tries some things again after 60 or 90 seconds."""


def poll(check: Callable[[], T | None], timeout: float = TIMEOUT, pause: float = 0.05) -> T | None:
    """Calls `check` every `pause` seconds until it returns something true, and returns that; None after `timeout`.

    `check` is called at least once. An exception that it raises ends the wait.
    """
    deadline = time.monotonic() + timeout
    while not (found := check()):
        if time.monotonic() > deadline:
            return None
        time.sleep(pause)
    return found
