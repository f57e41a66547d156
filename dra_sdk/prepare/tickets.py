"""Who came first: a prepare that was still waiting when its claim was unprepared must not run afterwards.

The kubelet gives up on a call after 45 s, but the call is still here; without this, a prepare that waited for a
lock could set up a claim that nobody will ever unprepare.
"""

from __future__ import annotations

from threading import Condition, Lock

from dra_sdk.errors import RetriableError


class Ticket:
    """One call that is under way, inside a `with`; `check` tells whether a prepare may still begin."""

    __slots__ = ("_open", "uid", "void")

    def __init__(self, open_: Tickets, uid: str, *, void: bool) -> None:
        self._open = open_
        self.uid = uid
        self.void = void

    def check(self) -> None:
        """RetriableError if the claim was unprepared since the call came in."""
        if self.void:
            raise RetriableError("the claim was unprepared while this call was waiting")

    def __enter__(self) -> Ticket:
        self._open.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.remove(self)


class Tickets:
    """The calls that are under way."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._all_ended = Condition(self._guard)
        self._open: set[Ticket] = set()

    def prepare(self, uid: str) -> Ticket:
        """A ticket for one prepare call."""
        return Ticket(self, uid, void=False)

    def unprepare(self, uid: str) -> Ticket:
        """Voids every open ticket of this claim; one that already began ends first, because it holds the lock."""
        return Ticket(self, uid, void=True)

    def add(self, ticket: Ticket) -> None:
        """A call begins."""
        with self._guard:
            if ticket.void:
                for each in self._open:
                    each.void |= each.uid == ticket.uid
            self._open.add(ticket)

    def remove(self, ticket: Ticket) -> None:
        """A call has ended."""
        with self._guard:
            self._open.remove(ticket)
            if not self._open:
                self._all_ended.notify_all()

    def drain(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until no call is under way; whether that came true."""
        with self._guard:
            return self._all_ended.wait_for(lambda: not self._open, timeout)
