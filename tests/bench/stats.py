"""The statistics of the benchmark: quantiles of one side, ratios of pairs with a bootstrap interval."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

Pair = tuple[float, float]
"""The same thing measured on both sides right after each other: ours, Go's."""
RESAMPLES = 2000
_SEED = 20260101


@dataclass(frozen=True)
class Comparison:
    """What a row of the table says about its pairs.

    `ratio` is p50 ours / p50 Go's, `low` and `high` its 95% percentile-bootstrap interval (pairs are drawn, so what
    disturbed both sides at one moment stays together), `pairwise` the median of the ratios within pairs.
    """

    samples: int
    p50: Pair
    p99: Pair
    ratio: float
    low: float
    high: float
    pairwise: float


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def compare(pairs: Sequence[Pair]) -> Comparison:
    """Compare both sides; ValueError without pairs."""
    if not pairs:
        raise ValueError("nothing was measured")
    ours, theirs = zip(*pairs, strict=True)
    low, high = _interval(pairs)
    return Comparison(
        samples=len(pairs),
        p50=(median(ours), median(theirs)),
        p99=(quantile(ours, 0.99), quantile(theirs, 0.99)),
        ratio=divide(median(ours), median(theirs)),
        low=low,
        high=high,
        pairwise=median(divide(mine, other) for mine, other in pairs),
    )


def divide(mine: float, other: float) -> float:
    """The ratio; 1 where both are nothing, infinite where only the other is."""
    if other:
        return mine / other
    return math.inf if mine else 1.0


def _interval(pairs: Sequence[Pair]) -> Pair:
    # Seeded: the same measurements always give the same report.
    draw = random.Random(_SEED)
    found = []
    for _ in range(RESAMPLES):
        ours, theirs = zip(*draw.choices(pairs, k=len(pairs)), strict=True)
        found.append(divide(median(ours), median(theirs)))
    return quantile(found, 0.025), quantile(found, 0.975)
