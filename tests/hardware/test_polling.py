"""Polling until a condition holds, and for changes."""

from __future__ import annotations

from threading import Event

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


def test_a_watch_reports_each_difference_between_two_snapshots_until_it_is_stopped():
    stop, changes = Event(), []
    snapshots = iter("aabbca")

    def take():
        found = next(snapshots, None)
        if found is None:
            stop.set()
            return "a"
        return found

    watch(take, lambda: changes.append(1), stop, 0.0)
    assert len(changes) == 3


def test_a_watch_that_is_stopped_before_its_start_takes_no_snapshot():
    stop, taken = Event(), []
    stop.set()
    watch(lambda: taken.append(1), lambda: None, stop, 0.0)
    assert taken == []
