"""Polling until a condition holds, and for changes."""

from __future__ import annotations

import logging
from threading import Event

import pytest

from dra_sdk import HardwareError
from dra_sdk.hardware.polling import Clock, watch


class FakeTime:
    """A clock that advances only in `sleep`."""

    def __init__(self):
        self.now = 100.0

    def clock(self):
        return Clock(lambda: self.now, self._sleep, 1.0)

    def _sleep(self, seconds):
        self.now += seconds


def test_all_waits_of_a_call_together_end_at_its_deadline():
    time = FakeTime()
    clock = time.clock().within(10)
    waited = []
    for _ in range(3):
        begun = time.now
        assert not clock.until(lambda: False, 6)
        waited.append(time.now - begun)
    assert waited == [6, 4, 0]
    assert clock.until(lambda: True, 6)
    assert clock.within(60).end == clock.end


def watched(snapshots):
    """How often a watch calls `changed` for these snapshots, each a value or an error."""
    stop, changes, left = Event(), [], iter(snapshots)

    def take():
        snapshot = next(left, None)
        if snapshot is None:
            stop.set()
            return last[0]
        if isinstance(snapshot, Exception):
            raise snapshot
        last[0] = snapshot
        return snapshot

    last = [None]
    watch(take, lambda: changes.append(last[0]), stop, 0.0)
    return changes


def test_a_watch_reports_its_begin_and_each_difference_between_two_snapshots():
    assert watched("abca") == ["a", "b", "c", "a", "a"]


def test_a_watch_reports_a_change_again_when_the_next_snapshot_is_equal():
    assert watched("aaaabbbb") == ["a", "a", "b", "b"]


@pytest.mark.parametrize("error", [HardwareError("gone"), FileNotFoundError("gone")])
def test_a_snapshot_that_fails_is_no_change_and_is_logged_once(error, caplog):
    with caplog.at_level(logging.WARNING):
        assert watched(["a", "a", error, error, "a", "b", "b"]) == ["a", "a", "b", "b"]
    assert [record.getMessage() for record in caplog.records] == ["hardware that is watched cannot be read: gone"]


def test_a_snapshot_that_fails_at_first_is_reported_when_it_succeeds():
    assert watched([HardwareError("gone"), "a", "a"]) == ["a", "a"]


def test_a_watch_looks_again_when_its_pause_ends():
    stop, pauses = Event(), []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            stop.set()

    watch(lambda: len(pauses), lambda: None, stop, 60.0, pause=pause)
    assert pauses == [60.0] * 3


def test_a_watch_that_is_stopped_before_its_start_takes_no_snapshot():
    stop, taken = Event(), []
    stop.set()
    watch(lambda: taken.append(1), lambda: None, stop, 0.0)
    assert taken == []
