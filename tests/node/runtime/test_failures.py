"""Discovery that fails for good is seen: a taint on what stays published, no readiness, until the first success."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dra_sdk import Device, Node, ResourcePool
from dra_sdk.errors import DraError
from dra_sdk.node import threads
from dra_sdk.node.runtime.discovery import Discovery
from dra_sdk.node.runtime.endpoints import pages
from dra_sdk.node.runtime.failures import FAILURES, SECONDS, DiscoveryFailures
from dra_sdk.testing.waiting import wait
from tests.node.runtime.test_discovery import driver

NAME = "lamps.example.com"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "FIRST_DELAY", 0.001)
    monkeypatch.setattr(threads, "LAST_DELAY", 0.004)


def test_the_third_failure_counts_and_those_after_it_change_nothing() -> None:
    failures = DiscoveryFailures(NAME, clock=lambda: 7.0)
    assert [failures.add(DraError(f"failure {n}")) for n in range(FAILURES + 2)] == [False, False, True, False, False]
    assert failures.failing is not None
    assert failures.failing.reason == "failure 2"
    failures.worked()
    assert failures.failing is None
    assert failures.add(DraError("once more")) is False


def test_a_failure_that_lasts_a_minute_counts() -> None:
    now = [100.0]
    failures = DiscoveryFailures(NAME, clock=lambda: now[0])
    assert failures.add(DraError("slow")) is False
    now[0] += SECONDS
    assert failures.add(DraError("slow")) is True


def test_every_device_is_tainted_while_it_fails_and_only_then() -> None:
    failures = DiscoveryFailures(NAME)
    pools = [ResourcePool("node-a", [Device("lamp-0"), Device("lamp-1")])]
    assert failures.apply(pools) is pools
    for _ in range(FAILURES):
        failures.add(DraError("the library is another version"))
    [pool] = failures.apply(pools)
    taints = [taint for device in pool.devices for taint in device.taints]
    assert [(taint.key, taint.value, taint.effect) for taint in taints] == 2 * [
        (f"{NAME}/discovery-failed", "DraError", "NoSchedule")
    ]
    assert failures.apply(failures.apply(pools)[:1])[0].devices[0].taints[0] == taints[0]


def test_devices_stay_with_a_taint_and_the_first_success_takes_it_away() -> None:
    broken: list[bool] = []

    def discover() -> Iterator[Device]:
        if broken:
            raise RuntimeError("library and kernel driver have different versions")
        yield Device("lamp-0")

    published: list[list[str]] = []

    def publish(pools: Any) -> None:
        published.append([taint.value for pool in pools for device in pool.devices for taint in device.taints])

    made = Discovery(driver(discover), Node("node-a"), publish)
    unused: Any = None
    serving: Any = type("Slices", (), {"synced": True})
    ready = pages(unused_metrics(), unused, "service", unused, serving, checks=[made.failures.check])["/readyz"]
    made.start()
    wait(lambda: published == [[]])
    assert ready() == b"ok\n"
    broken.append(True)
    made.again()
    wait(lambda: published[-1:] == [["RuntimeError"]])
    with pytest.raises(DraError, match="library and kernel driver have different versions"):
        ready()
    assert made.published("node-a", "lamp-0") is not None
    broken.clear()
    wait(lambda: published[-1:] == [[]])
    made.stop(5)
    assert ready() == b"ok\n"
    assert published == [[], ["RuntimeError"], []]


def unused_metrics() -> Any:
    return type("Metrics", (), {"text": bytes})
