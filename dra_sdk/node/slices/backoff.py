"""All delays of publishing, in seconds: before it reacts, before it tries again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from dra_sdk.errors import ApiError

_REFUSED: Final = frozenset({400, 422})


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delays of a `SliceController`, in seconds.

    debounce: how long events of one outside change are collected.
    retry: before a failed write is repeated, doubled each time.
    retry_limit: the longest such delay.
    refused: before a write is repeated that the server refuses as invalid, doubled each time.
    refused_limit: the longest such delay.
    repair: before slices are written again that somebody else keeps changing, doubled each time.
    repair_limit: the longest such delay.
    calm: how long they must stay unchanged until `repair` starts from the beginning.
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
        """Return the delay after this many failures in a row; it respects the Retry-After of the last one, `error`."""
        refused = isinstance(error, ApiError) and error.status in _REFUSED
        first, limit = (self.refused, self.refused_limit) if refused else (self.retry, self.retry_limit)
        asked = error.retry_after if isinstance(error, ApiError) else None
        return max(asked or 0.0, _doubled(first, failures, limit) * random.uniform(0.8, 1.2))  # noqa: S311 (jitter)

    def before_repair(self, repairs: int) -> float:
        """Return the delay after this number of repairs."""
        return _doubled(self.repair, repairs, self.repair_limit) if repairs else 0.0


def _doubled(first: float, times: int, limit: float) -> float:
    return min(limit, first * 2.0 ** min(times - 1, 30))
