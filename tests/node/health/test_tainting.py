from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta, timezone

import pytest

from dra_sdk import Device, DeviceHealth, DeviceTaint, HealthStatus, ResourcePool
from dra_sdk.node.files import Files
from dra_sdk.node.health.feed import HealthChange, HealthFeed
from dra_sdk.node.health.tainting import TAINTS_LIMIT, Tainting, TaintPolicy, update, with_taints
from dra_sdk.node.health.unhealthy_store import UnhealthyStore

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
POOLS = [ResourcePool("node-a", [Device("lamp-0"), Device("lamp-1")])]


class Node:
    """A driver's health and pools, wired as a process wires them; `published` is what reached the API, in order."""

    def __init__(self, store):
        self.published = []
        self.now = NOON
        self.feed = HealthFeed("lights.example.com", "node-a")
        policy = TaintPolicy("lights.example.com")
        self.pools = None
        self.tainting = Tainting(policy, store, lambda: self.now)
        self.feed.subscribe(self.changed)

    def discover(self, pools):
        self.pools = pools
        self.published.append(list(self.tainting.apply(pools)))

    def changed(self, changes):
        if self.tainting.changed(changes) and self.pools is not None:
            self.discover(self.pools)

    def report(self, *states):
        self.feed.report([DeviceHealth(f"lamp-{n}", status, "dark") for n, status in enumerate(states)])

    def taints(self):
        return [list(device.taints) for device in self.published[-1][0].devices]


HEALTHY, UNKNOWN, UNHEALTHY = HealthStatus.HEALTHY, HealthStatus.UNKNOWN, HealthStatus.UNHEALTHY


@pytest.fixture
def store(tmp_path):
    return UnhealthyStore(tmp_path / "unhealthy.json", Files())


@pytest.fixture
def node(store):
    return Node(store)


def test_healthy_pools_are_published_as_they_are(node):
    node.discover(POOLS)
    node.report(HEALTHY, HEALTHY)
    assert node.published == [POOLS]


def test_a_device_is_tainted_while_it_is_unhealthy(node):
    node.discover(POOLS)
    node.report(HEALTHY, UNHEALTHY)
    assert node.taints() == [[], [taint()]]
    node.report(HEALTHY, HEALTHY)
    assert node.published[-1] == POOLS
    assert len(node.published) == 3


def test_the_time_stays_that_of_the_first_report(node):
    node.discover(POOLS)
    for _ in range(3):
        node.report(UNHEALTHY, HEALTHY)
        node.now += timedelta(minutes=1)
    node.report(UNKNOWN, HEALTHY)
    node.report(UNHEALTHY, HEALTHY)
    assert len(node.published) == 2
    assert node.taints() == [[taint()], []]


def test_a_device_that_breaks_again_gets_a_new_time(node):
    node.discover(POOLS)
    node.report(UNHEALTHY)
    node.report(HEALTHY)
    node.now += timedelta(minutes=1)
    node.report(UNHEALTHY)
    assert node.taints()[0] == [taint(since=NOON + timedelta(minutes=1))]


def test_health_may_be_known_before_the_devices_are(node):
    node.report(UNHEALTHY)
    assert node.published == []
    node.discover(POOLS)
    assert node.taints() == [[taint()], []]


def test_a_new_discovery_keeps_the_taints(node):
    node.report(UNHEALTHY)
    node.discover(POOLS)
    node.discover([ResourcePool("node-a", [Device("lamp-0", {"color": "red"})])])
    assert node.taints() == [[taint()]]


def test_a_restart_publishes_the_same_taints_before_the_first_report(store):
    before = Node(store)
    before.discover(POOLS)
    before.report(HEALTHY, UNHEALTHY)

    after = Node(store)
    after.now += timedelta(minutes=1)
    after.discover(POOLS)
    assert after.published[-1] == before.published[-1]
    after.report(HEALTHY, UNHEALTHY)
    assert len(after.published) == 1
    after.report(HEALTHY, HEALTHY)
    assert after.published[-1] == POOLS


def test_a_device_that_was_repaired_during_the_restart_loses_its_taint(store):
    Node(store).report(UNHEALTHY)
    after = Node(store)
    after.discover(POOLS)
    after.report(HEALTHY, HEALTHY)
    assert after.published[-1] == POOLS


def test_what_happens_to_a_device_is_logged(node, caplog):
    caplog.set_level(logging.INFO)
    node.report(HEALTHY, UNHEALTHY)
    node.report(HEALTHY, HEALTHY)
    assert "device node-a/lamp-1 is unhealthy: dark" in caplog.text
    assert "device node-a/lamp-1 is healthy" in caplog.text


HEALTHY, UNKNOWN, UNHEALTHY = HealthStatus.HEALTHY, HealthStatus.UNKNOWN, HealthStatus.UNHEALTHY
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)
POLICY = TaintPolicy("lights.example.com")
LAMP = ("node-a", "lamp-0")


def taint(effect="NoSchedule", since=NOON):
    return DeviceTaint(key="lights.example.com/unhealthy", effect=effect, time_added=since)


def tainted(device, policy=POLICY, since=NOON, taints=("unhealthy",)):
    unhealthy = {("node-a", device.name): dict.fromkeys(taints, since)}
    (pool,) = with_taints([ResourcePool("node-a", [device])], unhealthy, policy)
    return list(pool.devices[0].taints)


def change(status, *taints, key=LAMP):
    return HealthChange(*key, UNKNOWN, status, taints=taints)


MARKED = {LAMP: {"unhealthy": NOON}}


def test_an_unhealthy_device_is_marked_once_with_the_time_in_utc():
    cet = timezone(timedelta(hours=1))
    marked = update({}, [change(UNHEALTHY)], datetime(2026, 1, 31, 13, 0, 0, 999999, tzinfo=cet))
    assert marked == MARKED
    assert marked[LAMP]["unhealthy"].tzinfo is UTC
    assert update(marked, [change(UNHEALTHY)], LATER) == MARKED


def test_only_healthy_lifts_the_mark():
    marked = {LAMP: {"unhealthy": NOON}}
    assert update(marked, [change(UNKNOWN)], LATER) == MARKED
    assert update(marked, [change(HEALTHY)], LATER) == {}
    assert update(marked, [change(HEALTHY), change(UNHEALTHY)], LATER) == {LAMP: {"unhealthy": LATER}}
    assert marked == MARKED


def test_each_named_taint_has_its_own_time_and_replaces_the_default():
    marked = update(MARKED, [change(UNHEALTHY, "fuse=3")], NOON)
    assert marked == {LAMP: {"fuse=3": NOON}}
    marked = update(marked, [change(UNHEALTHY, "fuse=4", "fuse=3")], LATER)
    assert marked == {LAMP: {"fuse=3": NOON, "fuse=4": LATER}}
    assert update(marked, [change(UNHEALTHY, "fuse=4")], LATER) == {LAMP: {"fuse=4": LATER}}


def test_named_taints_have_the_drivers_name_in_their_key():
    found = tainted(Device("lamp-0"), taints=("fuse=3", "fuse=4", "stolen"))
    assert [(each.key, each.value) for each in found] == [
        ("lights.example.com/fuse", "3"),
        ("lights.example.com/fuse", "4"),
        ("lights.example.com/stolen", ""),
    ]
    assert {each.effect for each in found} == {"NoSchedule"}


def test_named_taints_beyond_the_limit_are_left_out():
    assert len(tainted(Device("lamp-0"), taints=[f"fuse={number}" for number in range(99)])) == TAINTS_LIMIT


def test_a_taint_of_an_unhealthy_device_survives_a_restart(node, store):
    node.discover(POOLS)
    for taints in (["fuse=3"], ["fuse=3"], ["fuse=3", "stolen"]):
        node.feed.report([DeviceHealth("lamp-0", UNHEALTHY, taints=taints)])
    assert len(node.published) == 3
    keys = ["lights.example.com/fuse", "lights.example.com/stolen"]
    assert [each.key for each in node.taints()[0]] == keys
    after = Node(store)
    after.discover(POOLS)
    assert after.published[-1] == node.published[-1]


def test_unknown_and_healthy_mark_nothing():
    assert update({}, [change(UNKNOWN), change(HEALTHY, key=("p", "d"))], NOON) == {}


def test_the_taint_is_laid_over_the_unhealthy_device_alone():
    pools = [
        ResourcePool("node-a", [Device("lamp-0", {"color": "red"}), Device("lamp-1")]),
        ResourcePool("other", [Device("lamp-0")]),
    ]
    result = with_taints(pools, {**MARKED, ("gone", "lamp-9"): {"unhealthy": NOON}}, POLICY)
    assert result[0].devices[0] == Device("lamp-0", {"color": "red"}, taints=(taint(),))
    assert result[0].devices[1] is pools[0].devices[1]
    assert result[1] is pools[1]
    assert pools[0].devices[0].taints == ()


def test_recovery_restores_the_very_same_pools():
    pools = [ResourcePool("node-a", [Device("lamp-0")])]
    assert with_taints(pools, {}, POLICY)[0] is pools[0]


@pytest.mark.parametrize("effect", ["None", "NoSchedule", "NoExecute"])
def test_the_effect_is_the_policys(effect):
    assert tainted(Device("lamp-0"), TaintPolicy("lights.example.com", effect)) == [taint(effect)]


def test_the_drivers_own_taints_stay():
    own = DeviceTaint(key="lights.example.com/dim", effect="NoExecute", value="yes")
    assert tainted(Device("lamp-0", taints=[own])) == [own, taint()]


@pytest.mark.parametrize(
    ("own", "ours", "kept"),
    [
        ("NoExecute", "NoSchedule", "own"),
        ("NoSchedule", "NoSchedule", "own"),
        ("None", "NoSchedule", "ours"),
        ("NoSchedule", "NoExecute", "ours"),
    ],
)
def test_where_the_driver_sets_the_same_taint_the_worse_effect_counts(own, ours, kept):
    theirs = DeviceTaint(key="lights.example.com/unhealthy", effect=own, value="dark")
    expected = [theirs] if kept == "own" else [taint(ours)]
    assert tainted(Device("lamp-0", taints=[theirs]), TaintPolicy("lights.example.com", ours)) == expected


def test_a_device_with_as_many_taints_as_it_may_have_gets_none_more():
    taints = [DeviceTaint(key=f"example.com/t{n}", effect="NoSchedule") for n in range(TAINTS_LIMIT)]
    assert tainted(Device("lamp-0", taints=taints)) == taints
    assert tainted(Device("lamp-0", taints=taints[1:])) == [*taints[1:], taint()]
