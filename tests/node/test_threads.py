"""Threads that are started again when they fail, and end when they are asked."""

from __future__ import annotations

import logging
import subprocess
import sys
from threading import Event

import pytest

from dra_sdk.errors import DraError, HardwareError, HookError
from dra_sdk.node import threads
from dra_sdk.node.threads import RestartingThread
from dra_sdk.testing.waiting import LONG


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "FIRST_DELAY", 0.001)
    monkeypatch.setattr(threads, "LAST_DELAY", 0.004)


def test_a_body_that_returns_is_not_started_again() -> None:
    runs: list[int] = []
    thread = RestartingThread("t", lambda _stop: runs.append(1))
    thread.start()
    assert thread.join(LONG)
    assert runs == [1]
    assert thread.stop(LONG)


def raised_by_a_hook() -> HookError:
    error = HookError("dra_discover failed: KeyError: 'card'")
    error.__cause__ = KeyError("card")
    return error


@pytest.mark.parametrize("error", [RuntimeError("no bus"), SystemExit(1), raised_by_a_hook()])
def test_a_raise_is_logged_and_the_body_started_again(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    runs: list[int] = []

    def body(_stop: Event) -> None:
        runs.append(1)
        if len(runs) < 3:
            raise error

    with caplog.at_level(logging.ERROR):
        thread = RestartingThread("watch", body)
        thread.start()
        assert thread.join(LONG)
    assert len(runs) == 3
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [f"watch failed: {error}"] * 2
    assert all(record.exc_info and record.exc_info[1] is error for record in caplog.records)


@pytest.mark.parametrize("error", [HardwareError("/sys/class/lamp: no lamp"), HookError("returned None, want Devices")])
def test_an_error_of_ours_is_one_sentence_without_traceback(error: DraError, caplog: pytest.LogCaptureFixture) -> None:
    runs: list[int] = []

    def body(_stop: Event) -> None:
        runs.append(1)
        if len(runs) < 2:
            raise error

    with caplog.at_level(logging.ERROR):
        thread = RestartingThread("watch", body)
        thread.start()
        assert thread.join(LONG)
    (record,) = caplog.records
    assert record.getMessage() == f"watch failed: {error}; it starts again in 0.0 s"
    assert record.exc_info is None
    assert len(runs) == 2


def test_the_delay_doubles_to_a_limit_and_starts_again_after_progress() -> None:
    delays: list[float] = []
    thread: RestartingThread

    def body(_stop: Event) -> None:
        delays.append(thread.delay)
        if len(delays) == 5:
            thread.progressed()
        if len(delays) < 7:
            raise RuntimeError

    thread = RestartingThread("t", body)
    thread.start()
    assert thread.join(LONG)
    assert delays == [0.001, 0.002, 0.004, 0.004, 0.004, 0.002, 0.004]


def test_stopping_wakes_a_thread_that_waits_for_its_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "FIRST_DELAY", 3600.0)
    failed = Event()
    runs: list[int] = []

    def body(_stop: Event) -> None:
        runs.append(1)
        failed.set()
        raise RuntimeError

    thread = RestartingThread("t", body)
    thread.start()
    assert failed.wait(LONG)
    assert not thread.join(0.02)
    assert runs == [1]
    assert thread.stop(LONG)


def test_a_body_sees_that_it_should_stop() -> None:
    thread = RestartingThread("t", lambda stop: stop.wait())
    thread.start()
    assert thread.stop(LONG)


def test_a_body_that_ignores_it_is_reported() -> None:
    leave = Event()
    thread = RestartingThread("t", lambda _stop: leave.wait(LONG))
    thread.start()
    assert not thread.stop(0.01)
    leave.set()
    assert thread.stop(LONG)


def test_stopping_what_never_started_succeeds() -> None:
    assert RestartingThread("t", lambda _stop: None).stop(0.0)


def test_a_body_that_never_ends_does_not_keep_the_process() -> None:
    code = """
from threading import Event
from dra_sdk.node.threads import RestartingThread
thread = RestartingThread("t", lambda stop: Event().wait())
thread.start()
thread.stop(0.01)
"""
    paths = {"PYTHONPATH": ":".join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=paths, timeout=LONG, check=False).returncode == 0
