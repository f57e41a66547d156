"""Discovery that does not work any more: it has failed three times in a row, or for a minute.

What was published stays, with a taint on every device that keeps new pods away: nobody knows whether the hardware is as
it was. Claims that are held go on, and are undone. The first discovery that works takes the taint away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Final

from dra_sdk.errors import DraError
from dra_sdk.model.device import Device, DeviceTaint, ResourcePool

log = logging.getLogger(__name__)
FAILURES: Final = 3
"""How many failures in a row count, however soon they come."""
SECONDS: Final = 60.0
"""After which fewer failures count."""
KEY: Final = "discovery-failed"
"""The key of the taint, below the driver's name."""
_TAINTS_LIMIT: Final = 16  # taints per device since 1.35; one more and the whole pool would be refused


@dataclass(frozen=True, slots=True)
class Failing:
    """Why discovery does not work.

    reason: the error, as a sentence.
    kind: the name of the error's class, which is the value of the taint.
    since: when it was clear, to the second.
    """

    reason: str
    kind: str
    since: datetime


class DiscoveryFailures:
    """Counts the failures of a driver's discovery, and taints what is published while they count.

    driver: the driver's name.
    clock: a steady clock, in seconds.
    failing: why discovery does not work any more; None while it does.
    """

    def __init__(self, driver: str, clock: Callable[[], float] = monotonic) -> None:
        self._driver, self._clock = driver, clock
        self._failures = 0
        self._begun = 0.0
        self.failing: Failing | None = None

    def add(self, error: Exception) -> bool:
        """Count a failure; True if discovery does not work any more from now on."""
        now = self._clock()
        self._begun = self._begun if self._failures else now
        self._failures += 1
        if self.failing is not None or (self._failures < FAILURES and now - self._begun < SECONDS):
            return False
        cause = error.__cause__ or error
        since = datetime.now(UTC).replace(microsecond=0)
        self.failing = Failing(str(error) or type(error).__name__, type(cause).__name__[:63], since)
        log.error("driver %s: discovery does not work any more, devices are tainted: %s", self._driver, error)
        return True

    def worked(self) -> None:
        """Forget all failures, because a discovery has worked."""
        if self.failing is not None:
            log.info("driver %s: discovery works again", self._driver)
        self._failures, self.failing = 0, None

    def check(self) -> None:
        """Raise DraError with the reason if discovery does not work: the driver is not ready."""
        if self.failing is not None:
            raise DraError(f"discovery does not work: {self.failing.reason}")

    def apply(self, pools: Sequence[ResourcePool]) -> Sequence[ResourcePool]:
        """Return the pools, with a taint on every device if discovery does not work."""
        failing = self.failing
        if failing is None:
            return pools
        taint = DeviceTaint(
            key=f"{self._driver}/{KEY}", effect="NoSchedule", value=failing.kind, time_added=failing.since
        )
        return [replace(pool, devices=[_tainted(device, taint) for device in pool.devices]) for pool in pools]


def _tainted(device: Device, taint: DeviceTaint) -> Device:
    """Return a device with one more taint; in place of the last one if there is no room."""
    return replace(device, taints=(*device.taints[: _TAINTS_LIMIT - 1], taint))
