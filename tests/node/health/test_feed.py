from __future__ import annotations

import gc
import threading
from itertools import count

import pytest

from dra_sdk import DeviceHealth, HealthStatus
from dra_sdk.errors import HookError
from dra_sdk.node.health.feed import HealthChange, HealthFeed
from dra_sdk.testing.waiting import LONG, wait

HEALTHY, UNKNOWN, UNHEALTHY = HealthStatus.HEALTHY, HealthStatus.UNKNOWN, HealthStatus.UNHEALTHY


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def feed(clock):
    return HealthFeed("lights.example.com", "node-a", clock=clock)


def lamp(name="lamp-0", status=HEALTHY, **fields):
    return DeviceHealth(name, status, **fields)


def known(name="lamp-0", status=HEALTHY, **fields):
    return DeviceHealth(name, status, **{"pool": "node-a", **fields})


def always():
    return True


def in_thread(body):
    thread = threading.Thread(target=body)
    thread.start()
    return thread


def joined(thread):
    thread.join(LONG)
    return not thread.is_alive()


def test_the_snapshot_holds_the_latest_state_of_each_device_in_order(feed):
    feed.report([lamp("lamp-1"), lamp("lamp-0")])
    feed.report([lamp("lamp-1", UNHEALTHY, message="dark"), lamp("lamp-0", pool="a-pool")])
    assert feed.snapshot() == [
        known("lamp-0", pool="a-pool"),
        known("lamp-0"),
        known("lamp-1", UNHEALTHY, message="dark"),
    ]


def test_a_state_is_fresh_until_its_timeout_and_each_device_has_its_own(feed, clock):
    feed.report([lamp("lamp-0", timeout=10), lamp("lamp-1", timeout=20)])
    clock.now += 9.99
    assert len(feed.snapshot()) == 2
    clock.now += 0.01
    assert feed.snapshot() == [known("lamp-1", timeout=20)]
    feed.report([lamp("lamp-0", timeout=10)])
    assert len(feed.snapshot()) == 2


def test_a_refused_report_changes_nothing(feed):
    feed.report([lamp(status=UNHEALTHY)])
    with pytest.raises(HookError):
        feed.report([lamp(), "lamp-1"])
    assert feed.snapshot() == [known(status=UNHEALTHY)]


def test_names_that_are_reported_no_more_are_forgotten(feed, clock):
    for number in range(100):
        feed.report([lamp(f"spare-{number}", timeout=5)])
        clock.now += 5
    gc.collect()
    remembered = [each for each in gc.get_objects() if isinstance(each, DeviceHealth)]
    assert [each.device for each in remembered if each.device.startswith("spare-")] == ["spare-99"]


def test_a_follower_gets_everything_first_and_then_what_is_reported(feed):
    feed.report([lamp("lamp-0"), lamp("lamp-1")])
    stream = feed.follow("v1", always)
    assert next(stream) == [known("lamp-0"), known("lamp-1")]
    for status in (HEALTHY, UNHEALTHY, UNHEALTHY):
        feed.report([lamp("lamp-1", status)])
        assert next(stream) == [known("lamp-1", status)]


def test_a_device_whose_source_hangs_is_not_kept_alive_by_another_source(feed, clock):
    feed.report([lamp("wedged"), lamp("alive")])
    stream = feed.follow("v1", always)
    assert len(next(stream)) == 2
    for _ in range(3):
        clock.now += 5
        feed.report([lamp("alive")])
        assert next(stream) == [known("alive")]


def test_a_busy_follower_gets_the_latest_state_of_all_it_missed_at_once(feed):
    stream = feed.follow("v1", always)
    feed.report([lamp("lamp-0")])
    assert next(stream) == [known("lamp-0")]
    feed.report([lamp("lamp-0", UNHEALTHY), lamp("lamp-1")])
    feed.report([lamp("lamp-2")])
    feed.report([lamp("lamp-0")])
    assert next(stream) == [known("lamp-0"), known("lamp-1"), known("lamp-2")]


def test_a_follower_that_was_busy_for_too_long_is_not_told_what_went_stale(feed, clock):
    stream = feed.follow("v1", always)
    feed.report([lamp("lamp-0", timeout=5)])
    clock.now += 5
    feed.report([lamp("lamp-1", timeout=5)])
    assert next(stream) == [known("lamp-1", timeout=5)]


def test_without_anything_known_a_follower_waits_for_the_first_report(feed):
    received, stream = [], feed.follow("v1", always)
    thread = in_thread(lambda: received.append(next(stream)))
    feed.report([])
    assert received == []
    feed.report([lamp()])
    assert joined(thread)
    assert received == [[known()]]


def test_nothing_is_sent_while_the_source_is_silent(feed, clock):
    feed.report([lamp(timeout=5)])
    stream, received = feed.follow("v1", always), []
    assert next(stream) == [known(timeout=5)]
    clock.now += 60
    thread = in_thread(lambda: received.extend(stream))
    for _ in range(5):
        feed.wake()
    feed.close()
    assert joined(thread)
    assert received == []


def test_a_new_follower_of_a_group_ends_the_older_one_only(feed):
    feed.report([lamp()])
    older, other = feed.follow("v1", always), feed.follow("v1alpha1", always)
    assert next(older) == next(other) == [known()]
    newer = feed.follow("v1", always)
    assert list(older) == []
    assert next(newer) == [known()]
    feed.report([lamp()])
    assert next(newer) == next(other) == [known()]


def test_an_older_follower_that_waits_is_ended_by_the_newer(feed):
    older = feed.follow("v1", always)
    waiting = in_thread(lambda: list(older))
    newer = feed.follow("v1", always)
    assert joined(waiting)
    feed.report([lamp()])
    assert next(newer) == [known()]


def test_a_follower_ends_as_soon_as_it_is_woken_and_no_longer_alive(feed):
    alive = threading.Event()
    alive.set()
    received = []
    stream = feed.follow("v1", alive.is_set)
    thread = in_thread(lambda: received.append(list(stream)))
    alive.clear()
    feed.wake()
    assert joined(thread)
    assert received == [[]]


def test_a_follower_that_is_not_alive_from_the_start_gets_nothing(feed):
    feed.report([lamp()])
    assert list(feed.follow("v1", lambda: False)) == []


def test_the_end_of_an_abandoned_follower_leaves_the_newer_one(feed):
    feed.report([lamp()])
    older = feed.follow("v1", always)
    next(older)
    newer = feed.follow("v1", always)
    older.close()
    assert next(newer) == [known()]
    feed.report([lamp("lamp-1")])
    assert next(newer) == [known("lamp-1")]


def test_closing_ends_followers_now_and_later(feed):
    feed.report([lamp()])
    thread = in_thread(lambda: list(feed.follow("v1", always)))
    feed.close()
    assert joined(thread)
    assert list(feed.follow("v1", always)) == []
    feed.report([lamp()])  # the hook may still be running
    assert feed.snapshot() == [known()]


def test_listeners_hear_of_changes_only(feed, clock):
    heard = []
    feed.subscribe(heard.extend)
    feed.report([lamp("lamp-0"), lamp("lamp-1", UNKNOWN)])
    feed.report([lamp("lamp-0"), lamp("lamp-1", UNKNOWN)])
    feed.report([lamp("lamp-0", UNHEALTHY, message="dark")])
    feed.report([lamp("lamp-0", UNHEALTHY, message="still dark")])
    clock.now += 30
    feed.report([lamp("lamp-0", UNHEALTHY, message="dark again")])
    assert heard == [
        HealthChange("node-a", "lamp-0", UNKNOWN, HEALTHY),
        HealthChange("node-a", "lamp-0", HEALTHY, UNHEALTHY, "dark"),
        HealthChange("node-a", "lamp-0", UNKNOWN, UNHEALTHY, "dark again"),
    ]


def test_a_listener_that_fails_is_logged_and_the_others_are_told(feed, caplog):
    heard = []

    def broken(changes):
        raise RuntimeError("no")

    feed.subscribe(broken)
    feed.subscribe(heard.extend)
    feed.report([lamp()])
    assert len(heard) == 1
    assert "a listener failed on 1 changes of device health" in caplog.text


def test_a_listener_may_look_at_the_feed(feed):
    seen = []
    feed.subscribe(lambda changes: seen.append(feed.snapshot()))
    feed.report([lamp()])
    assert seen == [[known()]]


def test_reporters_listeners_and_followers_in_many_threads_agree_in_the_end(feed):
    states = {}
    feed.subscribe(lambda changes: states.update({each.device: each.new for each in changes}))
    received = {}

    def follow():
        for batch in feed.follow("v1", always):
            received.update({each.device: each.status for each in batch})

    def report(name):
        for number, status in zip(count(), [HEALTHY, UNHEALTHY, UNKNOWN] * 50, strict=False):
            feed.report([lamp(name, status, message=str(number))])

    follower = in_thread(follow)
    reporters = [in_thread(lambda name=f"lamp-{n}": report(name)) for n in range(4)]
    assert all(joined(each) for each in reporters)
    expected = {f"lamp-{n}": UNKNOWN for n in range(4)}
    wait(lambda: received == expected)
    feed.close()
    assert joined(follower)
    assert received == states == expected
