"""Following a stream of a service for as long as a driver runs: a thread opens it again when the service has restarted.

cards = Follower("card daemon", connect, lambda daemon: daemon.stream("Watch", pb.WatchRequest(), pb.State), take)
cards.start()
...
cards.stop()
cards.join(5)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from threading import Event, Lock, Thread
from time import monotonic
from typing import Final, Generic, Protocol, TypeVar

from dra_sdk.errors import DraError
from dra_sdk.rpc.client import CallError

log = logging.getLogger(__name__)
_FIRST_PAUSE: Final = 0.2  # seconds; each further one is twice as long
_LONGEST_PAUSE: Final = 10.0


class Connection(Protocol):
    """A connection to a service, such as SocketClient."""

    def close(self) -> None:
        """End all calls and streams, also from another thread."""


C = TypeVar("C", bound=Connection)
M = TypeVar("M")


class Follower(Generic[C, M]):
    """A thread that follows a stream, and the connection by which others call the same service.

    The service is away from the start until the first message, and from the end of a stream until the next message. A
    DraError of `connect`, `stream` or `take` is such an end; a pause follows, which grows up to ten seconds.

    peer: who is followed, for messages.
    connect: makes a connection, without waiting for the service.
    stream: opens the stream on a connection.
    take: is called with each message, and with whether the service was away before it.

    why: why the service is away; empty while it is there.
    """

    def __init__(
        self,
        peer: str,
        connect: Callable[[], C],
        stream: Callable[[C], Iterator[M]],
        take: Callable[[M, bool], object],
    ) -> None:
        self._peer, self._connect, self._stream, self._take = peer, connect, stream, take
        self._since: float | None = monotonic()  # when it went away; None while it is there
        self.why = "it has not been connected yet"
        self._stop, self._lock = Event(), Lock()
        self._connection: C | None = None
        self._thread = Thread(target=self._run, name="follower", daemon=True)

    @property
    def connection(self) -> C:
        """The connection, which is made when it is needed. CallError after `stop`."""
        with self._lock:
            if self._stop.is_set():
                raise CallError(f"{self._peer} is no longer followed")
            if self._connection is None:
                self._connection = self._connect()
            return self._connection

    def away(self) -> float:
        """Return for how many seconds the service has been away; 0 while it is there."""
        since = self._since
        return 0.0 if since is None else monotonic() - since

    def start(self) -> None:
        """Follow the stream."""
        self._thread.start()

    def stop(self) -> None:
        """End the connection, without waiting for the thread."""
        self._stop.set()
        self._disconnect()

    def join(self, seconds: float) -> None:
        """Wait up to `seconds` for the thread, which `stop` ends."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stop.is_set():
            try:
                for message in self._stream(self.connection):
                    was_away, self._since, self.why = self._since is not None, None, ""
                    self._take(message, was_away)
                    pause = _FIRST_PAUSE
                why = "it has ended its stream"
            except DraError as error:
                why = str(error)
            self._disconnect()
            if self._stop.is_set():
                return
            if self._since is None:
                log.warning("%s is away: %s", self._peer, why)
                self._since = monotonic()
            self.why = why
            self._stop.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _disconnect(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
