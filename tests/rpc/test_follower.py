"""Following a stream through restarts of the service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from dra_sdk.errors import HardwareError
from dra_sdk.rpc.client import CallError
from dra_sdk.rpc.follower import Follower
from dra_sdk.testing.waiting import LONG, wait


class Service:
    """What a stream says, message by message: a text, an exception, or None for its end."""

    def __init__(self) -> None:
        self.says: SimpleQueue[Any] = SimpleQueue()
        self.opened = self.closed = 0
        self._streaming = False

    def close(self) -> None:
        self.closed += 1
        if self._streaming:
            self.says.put(None)

    def stream(self, _connection: Service) -> Iterator[str]:
        self.opened += 1
        self._streaming = True
        try:
            while (said := self.says.get()) is not None:
                if isinstance(said, Exception):
                    raise said
                yield said
        finally:
            self._streaming = False


Taken = list[tuple[str, bool]]
Follow = Callable[..., Follower[Service, str]]


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def follow(service: Service) -> Iterator[Follow]:
    """Starts a follower, which ends with the test."""
    made: list[Follower[Service, str]] = []

    def start(take: Callable[[str, bool], object]) -> Follower[Service, str]:
        made.append(Follower("the daemon", lambda: service, service.stream, take))
        made[-1].start()
        return made[-1]

    yield start
    for each in made:
        each.stop()
        each.join(LONG)


def test_the_first_message_after_each_absence_is_known_as_such(service: Service, follow: Follow) -> None:
    taken: Taken = []
    follower = follow(lambda message, was_away: taken.append((message, was_away)))
    assert follower.away() > 0
    assert follower.why == "it has not been connected yet"
    for said in ("a", "b"):
        service.says.put(said)
    wait(lambda: len(taken) == 2)
    assert (follower.away(), follower.why) == (0, "")
    service.says.put(None)
    wait(follower.away)
    wait(lambda: follower.why == "it has ended its stream")
    service.says.put("c")
    wait(lambda: len(taken) == 3)
    assert taken == [("a", True), ("b", False), ("c", True)]
    assert service.opened >= 2


def test_an_error_of_stream_or_taker_is_an_end_with_a_reason(service: Service, follow: Follow) -> None:
    def take(message: str, _was_away: bool) -> None:
        if message == "garbage":
            raise HardwareError("no such card")

    follower = follow(take)
    for said, why in ((CallError("the socket is gone"), "the socket is gone"), ("garbage", "no such card")):
        service.says.put("a")
        service.says.put(said)
        wait(lambda why=why: follower.why == why)
        assert follower.away() > 0
    service.says.put("a")
    wait(lambda: not follower.away())


def test_the_connection_is_shared_and_made_again_until_the_end(service: Service, follow: Follow) -> None:
    follower = follow(lambda *_: None)
    service.says.put("a")
    wait(lambda: not follower.away())
    assert follower.connection is service
    follower.stop()
    follower.join(LONG)
    assert service.closed == 1
    with pytest.raises(CallError, match="the daemon is no longer followed"):
        _ = follower.connection


def test_a_follower_that_never_began_can_be_ended(service: Service) -> None:
    follower = Follower("the daemon", lambda: service, service.stream, lambda *_: None)
    assert follower.connection is service
    follower.stop()
    follower.join(LONG)
    assert service.closed == 1
