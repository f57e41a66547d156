"""Threads for handlers: a slow one delays no other, and a late one is noticed."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partial
from threading import Barrier, Event

import pytest

from dra_sdk.errors import NriError
from dra_sdk.node.nri.handler_threads import HandlerThreads
from dra_sdk.testing.waiting import LONG, wait


@pytest.fixture
def threads() -> Iterator[HandlerThreads]:
    threads = HandlerThreads("test", limit=4)
    yield threads
    assert threads.stop(LONG)


def test_a_function_runs_on_another_thread(threads: HandlerThreads) -> None:
    found: list[bool] = []
    threads.run(lambda: found.append(threads.is_current()), LONG)
    assert wait(lambda: found) == [True]
    assert not threads.is_current()


def test_functions_run_at_the_same_time(threads: HandlerThreads) -> None:
    together = Barrier(5)
    for _ in range(4):
        threads.run(lambda: together.wait(LONG), LONG)
    together.wait(LONG)


def test_what_a_function_was_about_is_free_when_it_has_returned(threads: HandlerThreads) -> None:
    class Message:
        pass

    message = Message()
    known = weakref.ref(message)
    threads.run(partial(id, message), LONG, partial(id, message))
    del message
    wait(lambda: known() is None)


def test_what_an_owner_has_asked_for_is_dropped_unless_it_has_begun(threads: HandlerThreads) -> None:
    begun, go_on, ran, late = Barrier(5), Event(), [], []
    theirs, others = object(), object()

    def work(number: int) -> None:
        begun.wait(LONG)
        go_on.wait(LONG)
        ran.append(number)

    for number in range(4):  # as many as there are threads
        threads.run(partial(work, number), LONG, owner=theirs)
    begun.wait(LONG)
    threads.run(partial(ran.append, 5), LONG, owner=theirs)
    threads.run(partial(ran.append, 6), LONG, partial(late.append, 6), owner=others)
    threads.run(partial(ran.append, 7), 0.05, partial(late.append, 7), owner=theirs)
    threads.drop(theirs)
    noticed, last = Event(), Event()
    threads.run(lambda: None, 0.1, noticed.set, owner=others)  # later than that of 7
    assert noticed.wait(LONG)
    go_on.set()
    threads.run(last.set, LONG)
    assert last.wait(LONG)
    wait(lambda: len(ran) == 5)
    assert (sorted(ran), late) == ([0, 1, 2, 3, 6], [])


def test_what_has_ended_is_not_watched_until_its_time_is_over(threads: HandlerThreads) -> None:
    for _ in range(2000):
        ended = Event()
        threads.run(ended.set, LONG)
        assert ended.wait(LONG)
    assert threads.watched < 200


def test_a_late_function_is_noticed_and_goes_on(threads: HandlerThreads) -> None:
    go_on, late, ended = Event(), Event(), Event()
    threads.run(lambda: (go_on.wait(LONG), ended.set()), 0.05, late.set)
    assert late.wait(LONG)
    go_on.set()
    assert ended.wait(LONG)


def test_a_function_in_time_is_not_late(threads: HandlerThreads) -> None:
    late: list[str] = []
    ended, other = Event(), Event()
    threads.run(ended.set, LONG, lambda: late.append("in time"))
    assert ended.wait(LONG)
    held = Event()
    threads.run(lambda: held.wait(LONG), 0.01, other.set)
    assert other.wait(LONG)
    held.set()
    assert late == []


def test_a_function_is_late_also_if_no_thread_is_free(threads: HandlerThreads) -> None:
    held, late = Event(), Event()
    for _ in range(4):
        threads.run(lambda: held.wait(LONG), LONG)
    threads.run(lambda: None, 0.05, late.set)
    assert late.wait(LONG)
    held.set()


def test_a_connection_that_has_gone_harms_no_thread(threads: HandlerThreads) -> None:
    def gone() -> None:
        raise NriError("gone")

    for _ in range(10):
        threads.run(gone, LONG)
    done = Event()
    threads.run(done.set, LONG)
    assert done.wait(LONG)


def test_stop_tells_whether_a_function_still_runs_and_drops_the_rest() -> None:
    threads = HandlerThreads("test", limit=1)
    began, held, dropped = Event(), Event(), Event()
    threads.run(lambda: (began.set(), held.wait(LONG)), LONG)
    threads.run(dropped.set, LONG)
    assert began.wait(LONG)
    assert not threads.stop(0.05)
    held.set()
    assert threads.stop(LONG)
    threads.run(dropped.set, LONG)
    assert not dropped.is_set()
