from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from dra_sdk import Device, DeviceHealth, DeviceTaint, HealthStatus, ResourcePool
from dra_sdk.node.health.feed import HealthFeed
from dra_sdk.node.health.memory import UnhealthyFile
from dra_sdk.node.health.tainted import TaintedPools
from dra_sdk.node.health.taints import TaintPolicy
from dra_sdk.node.prepare.files import Files

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
POOLS = [ResourcePool("node-a", [Device("lamp-0"), Device("lamp-1")])]


class Node:
    """A driver's health and pools, wired as a process wires them; `published` is what reached the API, in order."""

    def __init__(self, memory=None):
        self.published = []
        self.now = NOON
        self.feed = HealthFeed("lights.example.com", "node-a")
        policy = TaintPolicy("lights.example.com")
        self.pools = TaintedPools(policy, lambda pools: self.published.append(list(pools)), memory, lambda: self.now)
        self.feed.subscribe(self.pools.changed)

    def report(self, *states):
        self.feed.report([DeviceHealth(f"lamp-{n}", status, "dark") for n, status in enumerate(states)])

    def taints(self):
        return [list(device.taints) for device in self.published[-1][0].devices]


HEALTHY, UNKNOWN, UNHEALTHY = HealthStatus.HEALTHY, HealthStatus.UNKNOWN, HealthStatus.UNHEALTHY


def taint(since=NOON):
    return DeviceTaint(key="lights.example.com/unhealthy", effect="NoSchedule", time_added=since)


@pytest.fixture
def node():
    return Node()


def test_healthy_pools_are_published_as_they_are(node):
    node.pools.publish(POOLS)
    node.report(HEALTHY, HEALTHY)
    assert node.published == [POOLS]


def test_a_device_is_tainted_while_it_is_unhealthy(node):
    node.pools.publish(POOLS)
    node.report(HEALTHY, UNHEALTHY)
    assert node.taints() == [[], [taint()]]
    node.report(HEALTHY, HEALTHY)
    assert node.published[-1] == POOLS
    assert len(node.published) == 3


def test_the_time_stays_that_of_the_first_report_and_nothing_is_published_for_repetitions(node):
    node.pools.publish(POOLS)
    for _ in range(3):
        node.report(UNHEALTHY, HEALTHY)
        node.now += timedelta(minutes=1)
    node.report(UNKNOWN, HEALTHY)
    node.report(UNHEALTHY, HEALTHY)
    assert len(node.published) == 2
    assert node.taints() == [[taint()], []]


def test_a_device_that_breaks_again_gets_a_new_time(node):
    node.pools.publish(POOLS)
    node.report(UNHEALTHY)
    node.report(HEALTHY)
    node.now += timedelta(minutes=1)
    node.report(UNHEALTHY)
    assert node.taints()[0] == [taint(NOON + timedelta(minutes=1))]


def test_health_may_be_known_before_the_devices_are(node):
    node.report(UNHEALTHY)
    assert node.published == []
    node.pools.publish(POOLS)
    assert node.taints() == [[taint()], []]


def test_a_new_discovery_keeps_the_taints(node):
    node.report(UNHEALTHY)
    node.pools.publish(POOLS)
    node.pools.publish([ResourcePool("node-a", [Device("lamp-0", {"color": "red"})])])
    assert node.taints() == [[taint()]]


def test_a_restart_publishes_the_same_taints_before_the_first_report(tmp_path):
    memory = UnhealthyFile(tmp_path / "unhealthy.json", Files())
    before = Node(memory)
    before.pools.publish(POOLS)
    before.report(HEALTHY, UNHEALTHY)

    after = Node(memory)
    after.now += timedelta(minutes=1)
    after.pools.publish(POOLS)
    assert after.published[-1] == before.published[-1]
    after.report(HEALTHY, UNHEALTHY)
    assert len(after.published) == 1
    after.report(HEALTHY, HEALTHY)
    assert after.published[-1] == POOLS


def test_a_device_that_was_repaired_during_the_restart_loses_its_taint(tmp_path):
    memory = UnhealthyFile(tmp_path / "unhealthy.json", Files())
    Node(memory).report(UNHEALTHY)
    after = Node(memory)
    after.pools.publish(POOLS)
    after.report(HEALTHY, HEALTHY)
    assert after.published[-1] == POOLS


def test_what_happens_to_a_device_is_logged(node, caplog):
    caplog.set_level(logging.INFO)
    node.report(HEALTHY, UNHEALTHY)
    node.report(HEALTHY, HEALTHY)
    assert "device node-a/lamp-1 is unhealthy: dark" in caplog.text
    assert "device node-a/lamp-1 is healthy" in caplog.text
