from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from dra_sdk import Device, DeviceTaint, HealthStatus, ResourcePool
from dra_sdk.node.health.taints import TAINTS_LIMIT, TaintPolicy, combine, overlay, update

HEALTHY, UNKNOWN, UNHEALTHY = HealthStatus.HEALTHY, HealthStatus.UNKNOWN, HealthStatus.UNHEALTHY
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)
POLICY = TaintPolicy("lights.example.com")
LAMP = ("node-a", "lamp-0")


def taint(effect="NoSchedule", since=NOON):
    return DeviceTaint(key="lights.example.com/unhealthy", effect=effect, time_added=since)


def tainted(device, policy=POLICY, since=NOON):
    (pool,) = overlay([ResourcePool("node-a", [device])], {("node-a", device.name): since}, policy)
    return list(pool.devices[0].taints)


def test_an_unhealthy_device_is_marked_once_with_the_time_in_whole_seconds_of_utc():
    cet = timezone(timedelta(hours=1))
    marked = update({}, [(LAMP, UNHEALTHY)], datetime(2026, 1, 31, 13, 0, 0, 999999, tzinfo=cet))
    assert marked == {LAMP: NOON}
    assert marked[LAMP].tzinfo is UTC
    assert update(marked, [(LAMP, UNHEALTHY)], LATER) == {LAMP: NOON}


def test_only_healthy_lifts_the_mark():
    marked = {LAMP: NOON}
    assert update(marked, [(LAMP, UNKNOWN)], LATER) == {LAMP: NOON}
    assert update(marked, [(LAMP, HEALTHY)], LATER) == {}
    assert update(marked, [(LAMP, HEALTHY), (LAMP, UNHEALTHY)], LATER) == {LAMP: LATER}
    assert marked == {LAMP: NOON}


def test_unknown_and_healthy_mark_nothing():
    assert update({}, [(LAMP, UNKNOWN), (("p", "d"), HEALTHY)], NOON) == {}


def test_of_several_sources_unhealthy_wins_since_the_earliest():
    other = ("node-a", "lamp-1")
    assert combine({LAMP: LATER}, {}, {LAMP: NOON, other: LATER}) == {LAMP: NOON, other: LATER}
    assert combine() == {}


def test_the_taint_is_laid_over_the_unhealthy_device_alone():
    pools = [
        ResourcePool("node-a", [Device("lamp-0", {"color": "red"}), Device("lamp-1")]),
        ResourcePool("other", [Device("lamp-0")]),
    ]
    result = overlay(pools, {LAMP: NOON, ("gone", "lamp-9"): NOON}, POLICY)
    assert result[0].devices[0] == Device("lamp-0", {"color": "red"}, taints=(taint(),))
    assert result[0].devices[1] is pools[0].devices[1]
    assert result[1] is pools[1]
    assert pools[0].devices[0].taints == ()


def test_recovery_restores_the_very_same_pools():
    pools = [ResourcePool("node-a", [Device("lamp-0")])]
    assert overlay(pools, {}, POLICY)[0] is pools[0]


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
