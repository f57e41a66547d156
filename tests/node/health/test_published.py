"""Which device a report of health is about, and what is said of one that is not published."""

from __future__ import annotations

import logging

import pytest

from dra_sdk import Device, DeviceHealth, HealthStatus, ResourcePool
from dra_sdk.node.health.feed import HealthFeed
from dra_sdk.node.health.published import KnownDevices

HEALTHY = HealthStatus.HEALTHY


def published(**pools: list[str]) -> KnownDevices:
    known = KnownDevices()
    known.add([ResourcePool(name, [Device(device) for device in devices]) for name, devices in pools.items()])
    return known


def test_a_device_without_pool_belongs_to_the_only_pool_that_has_its_name() -> None:
    feed = HealthFeed("d.example.com", "node-a", published(rack=["gpu-0", "both"], other=["both"]))
    feed.report([DeviceHealth("gpu-0", HEALTHY), DeviceHealth("both", HEALTHY, pool="other")])
    assert [(health.pool, health.device) for health in feed.snapshot()] == [("other", "both"), ("rack", "gpu-0")]


@pytest.mark.parametrize(
    ("health", "text"),
    [
        (
            DeviceHealth("gpu-0", HEALTHY, pool="wrong"),
            "device wrong/gpu-0 is not published, but device gpu-0 of pool rack is",
        ),
        (DeviceHealth("both", HEALTHY), "device node-a/both is not published, but device both of pools rack, other is"),
        (DeviceHealth("gpu-00", HEALTHY), "device node-a/gpu-00 is not published; did you mean gpu-0?"),
        (DeviceHealth("xyz", HEALTHY), "device node-a/xyz is not published; the driver publishes gpu-0, both"),
    ],
)
def test_a_device_that_is_not_published_is_named_once(
    health: DeviceHealth, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    feed = HealthFeed("d.example.com", "node-a", published(rack=["gpu-0", "both"], other=["both"]))
    with caplog.at_level(logging.WARNING):
        feed.report([health])
        feed.report([health])
    assert caplog.text.count(f"dra_device_health of driver d.example.com: {text}") == 1


def test_a_device_that_was_unplugged_is_still_known(caplog: pytest.LogCaptureFixture) -> None:
    known = published(rack=["gpu-0"])
    feed = HealthFeed("d.example.com", "node-a", known)
    known.add([ResourcePool("rack", [])])
    feed.report([DeviceHealth("gpu-0", HealthStatus.UNKNOWN)])
    assert caplog.text == ""


def test_before_the_first_discovery_nothing_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    feed = HealthFeed("d.example.com", "node-a")
    feed.report([DeviceHealth("gpu-0", HEALTHY)])
    assert ([health.pool for health in feed.snapshot()], caplog.text) == (["node-a"], "")
