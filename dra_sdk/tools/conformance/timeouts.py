"""How long the kit waits, and the two ways in which it waits: for something to happen, and to see that nothing does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming

T = TypeVar("T")
INTERVAL: Final = 0.02
"""Seconds between two looks."""


@dataclass(frozen=True)
class Timeouts:
    """The longest times, in seconds, that the kit waits.

    start: from the start of the driver to its registration socket. The kubelet waits without end, so this is no part of
        the contract: it is long enough for a busy machine.
    stop: from SIGTERM to the end of the process. 30 s is a pod's default grace period.
    slices: until slices appear. The Go library waits 30 s before it restores deleted slices.
    quiet: how long a driver is watched that should do nothing.
    health: until a health report arrives. The kubelet's own limit is 30 s.
    settle: for effects that follow an answer immediately, such as the removal of a file.
    nri_connect: from the start of an NRI plugin until it is connected and synchronized. No part of the contract either.
    nri_reconnect: the same after the runtime has restarted.
    nri_registration: from the connection of an NRI plugin to RegisterPlugin. A part of the contract, as the next one.
    nri_request: until an NRI plugin has answered a call.
    kubelet: the kubelet's deadlines for each call. They are a part of the contract; only tests of the kit change them.
    """

    start: float = 120.0
    stop: float = 30.0
    slices: float = 60.0
    quiet: float = 3.0
    health: float = 35.0
    settle: float = 2.0
    nri_connect: float = 120.0
    nri_reconnect: float = 30.0
    nri_registration: float = 5.0
    nri_request: float = 2.0
    kubelet: KubeletTiming = field(default_factory=KubeletTiming)


def poll(seconds: float, interval: float = INTERVAL) -> Iterator[None]:
    """Yield at once and then every `interval` seconds, for `seconds` in total."""
    end = time.monotonic() + seconds
    yield
    while time.monotonic() < end:
        time.sleep(interval)
        yield


def wait_until(check: Callable[[], T], seconds: float, interval: float = INTERVAL) -> T:
    """Call `check` until its result is true or the time is over; return the last result."""
    for _ in poll(seconds, interval):
        if result := check():
            break
    return result
