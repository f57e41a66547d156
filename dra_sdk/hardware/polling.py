"""Polling: until a condition holds, within the time of a call; and for changes, for as long as a driver runs."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from threading import Event
from typing import Final

from dra_sdk.errors import DraError

log = logging.getLogger(__name__)
_NOTHING: Final = object()


@dataclass(frozen=True, slots=True)
class Clock:
    """Time, which tests can replace, and the end of the current call: no wait goes beyond it.

    now: the time in seconds of a steady clock.
    sleep: wait for a number of seconds.
    interval: seconds between two checks of a condition.
    end: when the call ends, as `now` counts.
    """

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    interval: float = 0.1
    end: float = math.inf

    def within(self, seconds: float) -> Clock:
        """Return the same clock for a call that may take `seconds`, all its waits together."""
        return replace(self, end=min(self.end, self.now() + seconds))

    def left(self, seconds: float) -> float:
        """Return `seconds`, or fewer if the call ends earlier."""
        return max(0.0, min(seconds, self.end - self.now()))

    def until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Check `done` until it holds; False if it does not within `seconds`."""
        end = self.now() + self.left(seconds)
        while not done():
            if self.now() >= end:
                return False
            self.sleep(self.interval)
        return True


def watch(
    snapshot: Callable[[], Hashable],
    changed: Callable[[], None],
    stop: Event,
    seconds: float,
    *,
    pause: Callable[[float], object] | None = None,
) -> None:
    """Take a snapshot every `seconds` until `stop` is set, and call `changed` when it differs from the one before.

    `changed` is called after the first snapshot too, as `dra_watch` must, so no change is lost before it. It is called
    once more at the next snapshot that is the same: a discovery that read the hardware in the middle of a series of
    changes is then not the last one. While a snapshot raises DraError or OSError, as in the middle of a change, nothing
    is called; it is logged once.

    `pause` waits up to a number of seconds, or less where something says that it is worth looking now; by default it
    waits for `stop`.
    """
    wait = pause or stop.wait
    last: Hashable = _NOTHING
    confirmed = failed = False
    while not stop.is_set():
        try:
            now = snapshot()
        except (DraError, OSError) as error:
            log.log(logging.DEBUG if failed else logging.WARNING, "hardware that is watched cannot be read: %s", error)
            failed = True
        else:
            is_new = now != last
            if is_new or not confirmed:
                changed()
            last, confirmed, failed = now, not is_new, False
        wait(seconds)
