"""What the last discovery left out, said once: a line of the log for each change, and a metric that names each.

Nothing is logged of a discovery that leaves out the same as the one before.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from typing import Final

from dra_sdk.model.metric import Gauge
from dra_sdk.model.omissions import Omission

log = logging.getLogger(__name__)
METRIC: Final = "dra_sdk_hardware_left_out"
MOST: Final = 32
"""The most lines of the log for one discovery, and the most values of the metric that name one; the rest is counted."""
_HELP: Final = "What the last discovery left out because it could not be read: a device, or a fact of one"


class OmissionReport:
    """The omissions of a driver's last discovery.

    driver: the driver's name.
    """

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self._latest: dict[tuple[bool, str], Omission] = {}

    def update(self, omissions: Collection[Omission]) -> None:
        """Take those of a discovery that has just ended, and log what is new or over."""
        before = self._latest
        self._latest = {(not omission.is_device, omission.subject): omission for omission in sorted(omissions)}
        new = [omission for key, omission in sorted(self._latest.items()) if key not in before]
        for omission in new[:MOST]:
            log.warning("driver %s: %s", self._driver, omission)
        if len(new) > MOST:
            log.warning("driver %s: %d more are left out; dra-sdk doctor lists them", self._driver, len(new) - MOST)
        over = sorted(omission.subject for key, omission in before.items() if key not in self._latest)
        if over:
            log.info("driver %s: no longer left out: %s", self._driver, ", ".join(over[:MOST]))

    def gauges(self) -> list[Gauge]:
        """Return the metric: 1 for each of the first, devices before facts; those beyond are counted as `others`."""
        keys = sorted(self._latest)
        counts = Counter(("fact" if is_fact else "device", subject) for is_fact, subject in keys[:MOST])
        counts.update(("fact" if is_fact else "device", "others") for is_fact, _ in keys[MOST:])
        return [
            Gauge(METRIC, _HELP, count, {"kind": kind, "subject": subject}) for (kind, subject), count in counts.items()
        ]
