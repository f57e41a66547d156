"""How fast the controller reacts and how slow it gives up: all delays of this package, in seconds."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from dra_sdk.errors import ApiError

_REFUSED: Final = frozenset({400, 422})


@dataclass(frozen=True, slots=True)
class Timing:
    """Delays of a `SliceController`.

    `debounce` collects the events of one outside change. A failed write is repeated after `retry`, doubled each time
    up to `retry_limit`; what the server refuses for what it is starts at `refused` and goes up to `refused_limit`.
    Where somebody keeps changing our slices, we put them right after `repair`, doubled each time up to `repair_limit`,
    until they left them alone for `calm`.
    """

    debounce: float = 0.1
    retry: float = 0.25
    retry_limit: float = 60.0
    refused: float = 5.0
    refused_limit: float = 300.0
    repair: float = 0.2
    repair_limit: float = 60.0
    calm: float = 120.0

    def after_failure(self, failures: int, error: Exception) -> float:
        """How long to wait after so many failures in a row, of which `error` is the last; Retry-After is honoured."""
        refused = isinstance(error, ApiError) and error.status in _REFUSED
        first, limit = (self.refused, self.refused_limit) if refused else (self.retry, self.retry_limit)
        asked = error.retry_after if isinstance(error, ApiError) else None
        return max(asked or 0.0, _doubled(first, failures, limit) * random.uniform(0.8, 1.2))  # noqa: S311 (jitter)

    def before_repair(self, repairs: int) -> float:
        """How long to leave slices alone after putting them right so many times."""
        return _doubled(self.repair, repairs, self.repair_limit) if repairs else 0.0


def _doubled(first: float, times: int, limit: float) -> float:
    return min(limit, first * 2.0 ** min(times - 1, 30))
