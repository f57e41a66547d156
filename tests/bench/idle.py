"""What the drivers cost while nobody asks anything of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.audit import counted
from tests.bench.contestants import Running
from tests.bench.stats import Pair
from tests.cluster.harness.audit import AuditLog

_SETTLE = 5.0
"""Seconds a driver has until what follows its start is over."""


@dataclass(frozen=True)
class Idleness:
    """CPU seconds per second, and the requests to the API server in so many seconds."""

    seconds: float
    cpu: Pair
    requests: tuple[Counter[str], Counter[str]]


def rest(both: Sequence[Running], audit: AuditLog, seconds: float) -> Idleness:
    """Leave both drivers, ours first, alone for so long."""
    time.sleep(_SETTLE)
    audit.mark()
    before = [each.cpu_seconds() for each in both]
    time.sleep(seconds)
    ours, theirs = ((each.cpu_seconds() - began) / seconds for each, began in zip(both, before, strict=True))
    mine, others = (counted(audit, each.contestant.user) for each in both)
    return Idleness(seconds, (ours, theirs), (mine, others))
