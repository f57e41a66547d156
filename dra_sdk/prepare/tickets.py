"""Who came first: a prepare that was still waiting when its claim was unprepared must not run afterwards.

The kubelet gives up on a call after 45 s, but the call is still here; without this, a prepare that waited for a
lock could set up a claim that nobody will ever unprepare.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition

from dra_sdk.errors import RetriableError


@dataclass
class Ticket:
    """One prepare call; `check` tells whether it may still begin."""

    uid: str
    void: bool = False

    def check(self) -> None:
        """RetriableError if the claim was unprepared since the call came in."""
        if self.void:
            raise RetriableError("the claim was unprepared while this call was waiting")


class Tickets:
    """The calls that are under way."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._open: list[Ticket] = []

    @contextmanager
    def prepare(self, uid: str) -> Iterator[Ticket]:
        """Hold a ticket for one prepare call."""
        with self._hold(Ticket(uid)) as ticket:
            yield ticket

    @contextmanager
    def unprepare(self, uid: str) -> Iterator[None]:
        """Void every open ticket of this claim; one that already began ends first, because it holds the lock."""
        with self._changed:
            for ticket in self._open:
                if ticket.uid == uid:
                    ticket.void = True
        with self._hold(Ticket(uid, void=True)):
            yield

    def drain(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until no call is under way; whether that came true."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, timeout)

    @contextmanager
    def _hold(self, ticket: Ticket) -> Iterator[Ticket]:
        with self._changed:
            self._open.append(ticket)
        try:
            yield ticket
        finally:
            with self._changed:
                self._open = [each for each in self._open if each is not ticket]
                self._changed.notify_all()
