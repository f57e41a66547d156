"""The faults of one device: which part of it each concerns, how often it occurred, and when it is over.

A fault concerns every part that touches the part where it occurred. Faults are kept side by side, so a later, lighter
fault does not hide an earlier one. Each lasts until the device has recovered, or has not repeated for some time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar


class Part(Protocol):
    """A part of a device, or all of it. It is hashable."""

    def touches(self, other: Self, /) -> bool:
        """Whether both have something in common."""


P = TypeVar("P", bound=Part)


@dataclass(slots=True)
class _Fault:
    last: float
    times: int = 0


class FaultHistory(Generic[P]):
    """The faults of a device, and remarks that leave it healthy. Times are seconds of any steady clock."""

    def __init__(self) -> None:
        self._faults: dict[tuple[P, str], _Fault] = {}
        self._remarks: Counter[str] = Counter()

    def add(self, part: P, what: str, now: float) -> bool:
        """Record a fault of a part; True if this part had no fault of this kind."""
        fault = self._faults.setdefault((part, what), _Fault(now))
        fault.last, fault.times = now, fault.times + 1
        return fault.times == 1

    def remark(self, what: str) -> bool:
        """Record something that leaves the device healthy; True the first time."""
        self._remarks[what] += 1
        return self._remarks[what] == 1

    def clear(self) -> None:
        """Forget all faults, because the device has recovered; remarks stay."""
        self._faults.clear()

    def forget(self, now: float, quiet: float) -> None:
        """Forget the faults that last occurred `quiet` seconds ago or earlier."""
        self._faults = {key: each for key, each in self._faults.items() if now - each.last < quiet}

    def faults(self, part: P) -> Iterator[str]:
        """The faults that concern a part, the oldest first."""
        for (where, what), fault in self._faults.items():
            if where.touches(part):
                yield _with_count(what, fault.times)

    def kinds(self, part: P) -> Iterator[str]:
        """The faults that concern a part, each as it was added, the oldest first."""
        yield from (what for where, what in self._faults if where.touches(part))

    def remarks(self) -> Iterator[str]:
        """The remarks, in alphabetical order."""
        for what, times in sorted(self._remarks.items()):
            yield _with_count(what, times)


def _with_count(what: str, times: int) -> str:
    return f"{what}, {times} times" if times > 1 else what
