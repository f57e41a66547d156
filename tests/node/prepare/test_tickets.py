"""Calls under way: when they came in, and waiting until they have ended."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from time import monotonic_ns

import pytest

from dra_sdk.node.prepare.tickets import Tickets
from dra_sdk.wire.context import Arrived


def test_a_ticket_tells_when_its_call_came_in() -> None:
    tickets = Tickets()
    before = monotonic_ns()
    with Arrived():
        between = monotonic_ns()
        first, second = tickets.take(), tickets.take()
    assert before <= first.arrived == second.arrived <= between <= tickets.take().arrived


def test_draining_waits_for_every_call_and_gives_up_in_time() -> None:
    tickets = Tickets()
    assert tickets.drain(0.0)
    entered, leave = Event(), Event()

    def call() -> None:
        with tickets.take():
            entered.set()
            leave.wait(50)

    thread = Thread(target=call)
    thread.start()
    assert entered.wait(50)
    assert not tickets.drain(0.01)
    with ThreadPoolExecutor(1) as pool:
        drained = pool.submit(tickets.drain, 300.0)
        leave.set()
        assert drained.result(50.0), "told at once, not only when the time is over"
    thread.join()


def test_a_raise_gives_the_ticket_back() -> None:
    tickets = Tickets()
    with pytest.raises(RuntimeError), tickets.take():
        raise RuntimeError
    assert tickets.drain(0.0)
