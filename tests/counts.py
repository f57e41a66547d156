"""How often `make faults` repeats what is drawn at random: enough for each run; with FULL=1 all that there is.

DRA_SDK_FULL  1: everything, as `make faults FULL=1`
DRA_SDK_TURN  which share of a list has its turn: `make faults` counts days
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, TypeVar

FULL: Final = os.environ.get("DRA_SDK_FULL") == "1"
TURN: Final = int(os.environ.get("DRA_SDK_TURN") or 0)
T = TypeVar("T")


def count(usual: int, full: int) -> int:
    """The number of repetitions."""
    return full if FULL else usual


def share(things: Sequence[T], shares: int) -> Sequence[T]:
    """Every so many of the things, beginning at another one at each turn."""
    return things if FULL else things[TURN % shares :: shares]
