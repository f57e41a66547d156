"""A process that waits for a request to stop hears each one, whenever and in whichever thread it arrives."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from dra_sdk.cli.stop_request import SIGNALS, StopRequest
from dra_sdk.testing.waiting import LONG


@pytest.fixture
def request_() -> Iterator[StopRequest]:
    """A request in this thread; the handlers are put back."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        with StopRequest() as made:
            yield made
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_thread_says_why(request_: StopRequest) -> None:
    said = threading.Thread(target=request_.put, args=["the runtime has ended"])
    said.start()
    assert request_.wait() == "the runtime has ended"
    said.join()


def test_a_signal_before_the_wait_is_heard(request_: StopRequest) -> None:
    request_.catch_signals()
    signal.raise_signal(signal.SIGINT)
    assert request_.wait() == "SIGINT"


def test_a_signal_that_the_kernel_gives_to_another_thread_is_heard(request_: StopRequest) -> None:
    """Nothing interrupts the wait of the main thread then."""
    request_.catch_signals()
    sender = threading.Thread(target=signal_its_own_thread)
    sender.start()
    assert request_.wait() == "SIGTERM"
    sender.join()


def test_other_signals_are_passed_over(request_: StopRequest) -> None:
    """CPython writes every signal that has a handler, and a driver may have its own."""
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: heard.append(number))
    try:
        request_.catch_signals()
        signal.raise_signal(signal.SIGUSR1)
        request_.put("enough")
        assert request_.wait() == "enough"
        assert heard == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_more_reasons_than_the_socket_holds_and_a_late_one_do_no_harm() -> None:
    with StopRequest() as request, ThreadPoolExecutor(1) as pool:
        done: Future[None] = pool.submit(lambda: [request.put(str(number)) for number in range(5000)] and None)
        done.result(LONG)
        assert request.wait() == "0"
    request.put("too late")


SECOND_SIGNAL = """
import signal
from dra_sdk.cli.stop_request import StopRequest
with StopRequest() as request:
    request.catch_signals()
    signal.raise_signal(signal.SIGTERM)
    print(request.wait(), flush=True)
    signal.raise_signal(signal.SIGTERM)
    print("still here")
"""


def test_a_second_signal_ends_the_process_at_once() -> None:
    command = [sys.executable, "-c", SECOND_SIGNAL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "SIGTERM\n")


def signal_its_own_thread() -> None:
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
