"""What is known of one GPU's health: a pure state machine that is fed readings and events.

| fault | begins | ends |
|---|---|---|
| lost | NVML answers GPU_IS_LOST | it answers again |
| in need of a reset | NVML answers RESET_REQUIRED | it answers again |
| recovery action | the driver names one | the driver names none |
| remapped rows | pending, or failed | neither, or the GPU recovered |
| XID that is not benign, double-bit ECC error | the event, or the counter of uncorrected errors | the GPU recovered |

Faults stand beside each other, so a later, lighter one hides none. A GPU has recovered when it was lost or wanted a
reset and is back, when the driver's recovery action went back to none, when its counters started again from less (it
was reset), when it comes back from being passed through, or once the driver has said for `settle` seconds after the
last event that nothing is to be done. Drivers before R570 name no recovery action, so there only the other signs count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from dra_driver_gpu.health.readings import Reading
from dra_driver_gpu.health.sites import Site
from dra_driver_gpu.nvml.values import RecoveryAction, RemappedRows

DOUBLE_BIT: Final = "double-bit ECC error"


class Reach(Enum):
    """Whether the GPU answers: it does, is lost, wants a reset, is passed through, or NVML fails to say."""

    SEEN = "seen"
    LOST = "lost"
    RESET = "in need of a reset"
    AWAY = "away"
    UNREADABLE = "unreadable"


@dataclass(slots=True)
class _Event:
    at: float
    times: int = 1


@dataclass(slots=True)
class GpuHistory:
    """One GPU. Times are in seconds of any steady clock."""

    settle: float
    reach: Reach = Reach.SEEN
    trouble: str = ""
    corrected: int = 0
    benign: Counter[str] = field(default_factory=Counter)
    _action: RecoveryAction | None = None
    _rows: RemappedRows | None = None
    _uncorrected: int | None = None
    _doubted: bool = False
    _unexplained: bool = False
    _ecc_event: bool = False
    _events: dict[tuple[Site, str], _Event] = field(default_factory=dict)

    # what happens

    def error(self, site: Site, what: str, now: float) -> bool:
        """Something happened that makes what is at `site` unhealthy until the GPU recovered; whether that is news."""
        known = self._events.setdefault((site, what), _Event(now, 0))
        known.at, known.times = now, known.times + 1
        return known.times == 1

    def double_bit(self, site: Site, now: float) -> bool:
        """The event of an uncorrectable memory error, which explains that the counter rises; whether it is news."""
        self._ecc_event = True
        return self.error(site, DOUBLE_BIT, now)

    def excused(self, what: str) -> bool:
        """Something happened that leaves the GPU healthy; whether it is the first time."""
        self.benign[what] += 1
        return self.benign[what] == 1

    def read(self, site: Site, reading: Reading, now: float) -> None:
        """The GPU at `site` answered."""
        if self.reach in {Reach.LOST, Reach.RESET, Reach.AWAY}:
            self.recovered()
        self.reach, self.trouble, self._doubted = Reach.SEEN, "", False
        if reading.action is not None:
            self._told_action(reading.action)
        if reading.rows is not None:
            self._rows = reading.rows
        if reading.uncorrected is not None:
            self._counted(site, reading.uncorrected, now)
        if reading.corrected is not None:
            self.corrected = reading.corrected
        if self._action is RecoveryAction.NONE:
            self._events = {key: each for key, each in self._events.items() if now - each.at < self.settle}

    def missing(self, reach: Reach, trouble: str = "") -> None:
        """The GPU did not answer; that NVML merely failed to say is believed the second time."""
        if reach is not Reach.UNREADABLE or self._doubted:
            self.reach, self.trouble = reach, trouble
        self._doubted = True

    def recovered(self) -> None:
        """The GPU was reset: what happened before says nothing about it any more."""
        self._events.clear()
        self._rows = None
        self._unexplained = self._ecc_event = False

    def _told_action(self, action: RecoveryAction) -> None:
        if action is RecoveryAction.NONE and self._action not in {None, RecoveryAction.NONE}:
            self.recovered()
        self._action = action

    def _counted(self, site: Site, count: int, now: float) -> None:
        """A rise that no event explains by the next reading is an error of the whole GPU."""
        known = self._uncorrected
        if known is None:  # errors from before we looked count unless the driver says that all is well
            rose = count > 0 and self._action is not RecoveryAction.NONE
            if rose:
                self.error(site, DOUBLE_BIT, now)
        elif count < known:
            self.recovered()
        elif self._unexplained or count > known:
            if self._unexplained and not self._ecc_event:
                self.error(site, DOUBLE_BIT, now)
            self._unexplained = count > known and not self._ecc_event
        self._uncorrected, self._ecc_event = count, False

    # what follows

    def problems(self, site: Site) -> Iterator[str]:
        """What makes the device at `site` unhealthy, the worst first; nothing where it is healthy."""
        if self.reach is Reach.LOST:
            yield "the GPU is lost"
        if self.reach is Reach.RESET:
            yield "the GPU needs a reset"
        if self._action not in {None, RecoveryAction.NONE}:
            yield f"the driver asks for {self._action.name if self._action else ''}"
        if self._rows is not None and self._rows.failed:
            yield "a memory row could not be remapped"
        if self._rows is not None and self._rows.pending:
            yield "a remapped memory row waits for a reset"
        for (where, what), event in self._events.items():
            if where.touches(site):
                yield f"{what}, {event.times} times" if event.times > 1 else what

    def remarks(self) -> Iterator[str]:
        """What is worth telling of a healthy device."""
        for what, times in sorted(self.benign.items()):
            yield f"{what}, {times} times" if times > 1 else what
        if self.corrected:
            yield f"corrected memory errors: {self.corrected}"
