"""Health: from what is observed of the cards of a node to the health of each device that they are published as.

    health = HealthTracker(settle=10)
    while not stop.is_set():
        for card in read_cards(node):
            health.publish(card.address, {"card0": None, "card0-region0": {0}, "card0-region1": {1}})
            health.observe(card.address, ["the link is down"] if card.link_is_down else [])
        yield health.report()
        stop.wait(2)

A reading (`observe`) says which problems a card has now. An event (`fault`) says that something happened, and lasts
until the card has recovered. Both concern all devices of the card, or those that have units in common with the place
of the problem. Problems are kept side by side, so a later, lighter one does not hide an earlier one.

`FaultHistory` is the history of one device alone, for drivers with rules of their own.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Final, Generic, Protocol, Self, TypeVar

from dra_sdk.errors import DraError
from dra_sdk.model.status import DeviceHealth, HealthStatus

log = logging.getLogger(__name__)
_NOT_READ: Final = "its card has not been read"


class Part(Protocol):
    """A part of a device, or all of it. It is hashable."""

    def touches(self, other: Self, /) -> bool:
        """Return whether both have something in common."""


P = TypeVar("P", bound=Part)


@dataclass(slots=True)
class _Fault:
    last: float
    times: int = 0


@dataclass(slots=True)
class _Problem:
    """A problem of readings: whether the last one had it and since when, and whether it counts."""

    present: bool
    since: float
    counts: bool = False


class FaultHistory(Generic[P]):
    """The problems of a device, and remarks that leave it healthy. Times are seconds of any steady clock.

    A problem of a reading counts when all readings of `settle` seconds have had it, and no longer when all readings of
    `settle` seconds have not: a state that comes and goes more quickly changes nothing.
    """

    def __init__(self, settle: float = 0.0) -> None:
        self._settle = settle
        self._faults: dict[tuple[P, str], _Fault] = {}
        self._problems: dict[tuple[P, str], _Problem] = {}
        self._remarks: Counter[str] = Counter()

    def observe(self, part: P, problems: Iterable[str], now: float) -> None:
        """Record a reading of a part: all problems that it has now."""
        if isinstance(problems, str):
            raise TypeError(f"problems must be a list of texts, is {problems!r}")
        reading = dict.fromkeys((part, what) for what in problems)
        for key in reading:
            self._problems.setdefault(key, _Problem(present=True, since=now))
        for key, problem in list(self._problems.items()):
            if key[0] != part:
                continue
            if problem.present != (key in reading):
                problem.present, problem.since = key in reading, now
            if now - problem.since >= self._settle:
                problem.counts = problem.present
            if not (problem.present or problem.counts):
                del self._problems[key]

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
        """Forget all faults, because the device has recovered; remarks and the last reading stay."""
        self._faults.clear()

    def forget(self, now: float, quiet: float) -> None:
        """Forget the faults that last occurred `quiet` seconds ago or earlier."""
        self._faults = {key: fault for key, fault in self._faults.items() if now - fault.last < quiet}

    def faults(self, part: P) -> Iterator[str]:
        """Yield the problems and faults that concern a part, both in the order in which they began, problems first."""
        for (where, what), problem in self._problems.items():
            if problem.counts and where.touches(part):
                yield what
        for (where, what), fault in self._faults.items():
            if where.touches(part):
                yield _with_count(what, fault.times)

    def kinds(self, part: P) -> Iterator[str]:
        """Yield the faults that concern a part, each as it was added, the oldest first."""
        yield from (what for where, what in self._faults if where.touches(part))

    def remarks(self) -> Iterator[str]:
        """Yield the remarks, in alphabetical order."""
        for what, times in sorted(self._remarks.items()):
            yield _with_count(what, times)


@dataclass(frozen=True, slots=True)
class Units:
    """A part of a card: its memory slices, regions, ports or virtual functions, by number or name.

    units: the units of the part. None: all of the card.
    """

    units: frozenset[Hashable] | None = None

    @classmethod
    def of(cls, units: Iterable[Hashable] | None) -> Units:
        """Return the part with these units; None: all of the card."""
        return cls(None if units is None else frozenset(units))

    def touches(self, other: Units, /) -> bool:
        """Return whether both have a unit in common."""
        return self.units is None or other.units is None or not self.units.isdisjoint(other.units)


@dataclass(slots=True)
class _CardState:
    history: FaultHistory[Units]
    devices: dict[str, Units] = field(default_factory=dict)
    reading: dict[Units, tuple[str, ...]] = field(default_factory=dict)  # the remarks of the last reading
    pool: str | None = None
    was_read: bool = False
    unreadable_since: float = math.inf
    why: str = _NOT_READ


class HealthTracker:
    """The health of the cards of a node, each known by a key of the driver's choice, such as its PCI address.

    Methods may be called in any order; a card is known from the first call that names it. Not safe for threads.

    settle: seconds for which readings must agree until a problem counts, until it is over, and until a card that cannot
        be read is Unknown.
    forget: seconds after which a fault that has not occurred again is over. Infinite: only `recovered` ends it.
    timeout: `DeviceHealth.timeout` of the reports.
    clock: a steady clock, in seconds.
    """

    def __init__(
        self,
        *,
        settle: float = 0.0,
        forget: float = math.inf,
        timeout: int = 30,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settle, self._forget, self._timeout, self._clock = settle, forget, timeout, clock
        self._cards: dict[str, _CardState] = {}

    def publish(self, card: str, devices: Mapping[str, Iterable[Hashable] | None], pool: str | None = None) -> None:
        """Say as which devices a card is published: for each its units, or None for all of the card.

        `pool` is the pool of the devices; None: the node's own pool.
        """
        known = self._card(card)
        known.devices = {name: Units.of(units) for name, units in devices.items()}
        known.pool = pool

    def observe(
        self,
        card: str,
        problems: Iterable[str],
        units: Iterable[Hashable] | None = None,
        *,
        remarks: Iterable[str] = (),
    ) -> None:
        """Record a reading of a card, or of some of its units: all problems that it has now, none if it is healthy.

        A problem of the reading before that is not among them is over. So are its `remarks`: what is worth a message
        now and leaves the card healthy, such as the number of corrected errors.
        """
        if isinstance(remarks, str):
            raise TypeError(f"remarks must be a list of texts, is {remarks!r}")
        known, part = self._card(card), Units.of(units)
        known.reading[part] = tuple(remarks)
        known.was_read, known.unreadable_since, known.why = True, math.inf, ""
        known.history.observe(part, problems, self._clock())

    def unreadable(self, card: str, why: str) -> None:
        """Record that a card cannot be read. Its devices become Unknown, except those with a problem that is known."""
        known = self._card(card)
        known.unreadable_since, known.why = min(known.unreadable_since, self._clock()), why

    def fault(self, card: str, what: str, units: Iterable[Hashable] | None = None) -> bool:
        """Record an event that makes a card, or some of its units, unhealthy until it has recovered; True if new."""
        return self._card(card).history.add(Units.of(units), what, self._clock())

    def remark(self, card: str, what: str) -> bool:
        """Record something that is worth a message and leaves the card healthy; True the first time."""
        return self._card(card).history.remark(what)

    def recovered(self, card: str) -> None:
        """Forget the faults of a card, as after a reset; the problems of its last reading stay."""
        self._card(card).history.clear()

    def remove(self, card: str) -> None:
        """Forget a card that is no longer there, with all its history."""
        self._cards.pop(card, None)

    def report(self) -> list[DeviceHealth]:
        """Return the health of all devices of all cards: a report of `dra_device_health`."""
        now = self._clock()
        reports = []
        for card in self._cards.values():
            card.history.forget(now, self._forget)
            for name, units in card.devices.items():
                status, message = self._status(card, units, now)
                reports.append(DeviceHealth(name, status, message, card.pool, self._timeout))
        return reports

    def _status(self, card: _CardState, units: Units, now: float) -> tuple[HealthStatus, str]:
        if problems := list(card.history.faults(units)):
            return HealthStatus.UNHEALTHY, "; ".join(problems)
        if not card.was_read or now - card.unreadable_since >= self._settle:
            return HealthStatus.UNKNOWN, card.why
        latest = (remark for part, remarks in card.reading.items() if part.touches(units) for remark in remarks)
        return HealthStatus.HEALTHY, "; ".join([*latest, *card.history.remarks()])

    def _card(self, card: str) -> _CardState:
        return self._cards.setdefault(card, _CardState(FaultHistory(self._settle)))


def watch(
    read: Callable[[], list[DeviceHealth]], stop: Event, interval: float, what: str
) -> Iterator[list[DeviceHealth]]:
    """Yield for `dra_device_health` a report of `read`, every `interval` seconds until `stop` is set.

    If `read` raises DraError, as in the middle of a change, it is logged as the health of `what`, such as `CPUs`, and
    nothing is yielded: a device without report becomes Unknown.
    """
    while not stop.is_set():
        try:
            yield read()
        except DraError as error:
            log.warning("the health of %s cannot be read, trying again: %s", what, error)
        stop.wait(interval)


def _with_count(what: str, times: int) -> str:
    return f"{what}, {times} times" if times > 1 else what
