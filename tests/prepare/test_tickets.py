"""A prepare that waited while its claim was unprepared must not begin."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import pytest

from dra_sdk.errors import RetriableError
from dra_sdk.prepare.tickets import Tickets


def test_a_ticket_is_good_until_its_claim_is_unprepared() -> None:
    tickets = Tickets()
    with tickets.prepare("u-1") as ticket, tickets.prepare("u-2") as other:
        ticket.check()
        with tickets.unprepare("u-1"):
            pass
        with pytest.raises(RetriableError, match="unprepared while this call was waiting"):
            ticket.check()
        other.check()


def test_a_prepare_that_comes_after_the_unprepare_is_good() -> None:
    tickets = Tickets()
    with tickets.unprepare("u-1"), tickets.prepare("u-1") as ticket:
        ticket.check()


def test_draining_waits_for_every_call_and_gives_up_in_time() -> None:
    tickets = Tickets()
    assert tickets.drain(0.0)
    entered, leave = Event(), Event()

    def call() -> None:
        with tickets.unprepare("u-1"):
            entered.set()
            leave.wait(10)

    thread = Thread(target=call)
    thread.start()
    assert entered.wait(10)
    assert not tickets.drain(0.01)
    with ThreadPoolExecutor(1) as pool:
        drained = pool.submit(tickets.drain, 30.0)
        leave.set()
        assert drained.result(10.0), "told at once, not only when the time is over"
    thread.join()


def test_a_raise_gives_the_ticket_back() -> None:
    tickets = Tickets()
    with pytest.raises(RuntimeError), tickets.prepare("u-1"):
        raise RuntimeError
    assert tickets.drain(0.0)
