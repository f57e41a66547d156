"""The calls that are under way, and when each came in."""

from __future__ import annotations

from threading import Condition, Lock

from dra_sdk.wire.context import arrival


class Ticket:
    """One call that is under way, inside a `with`; `arrived` is when it came in (see `arrival`)."""

    __slots__ = ("_open", "arrived")

    def __init__(self, open_: Tickets) -> None:
        self._open = open_
        self.arrived = arrival()

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

    def take(self) -> Ticket:
        """A ticket for one call."""
        return Ticket(self)

    def add(self, ticket: Ticket) -> None:
        """A call begins."""
        with self._guard:
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
