from __future__ import annotations

from pathlib import Path

import pytest

from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator.kubelet.emulator import KubeletEmulator
from dra_sdk.tools.simulator.kubelet.health import HealthCache, ResourceHealth, truncate_message
from dra_sdk.tools.simulator.kubelet.records import HEALTH
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.wire.proto import dra_health_v1_pb2
from tests.tools.simulator.fakes import VERSIONS, FakeDriver
from tests.tools.simulator.kubelet.conftest import NODE

DRIVER = "gpu.example.com"
POOL = "node-1"
GOOD, BAD = dra_health_v1_pb2.HEALTHY, dra_health_v1_pb2.UNHEALTHY


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def report(device: str, health: int, *, timeout: int = 0, message: str = "") -> dra_health_v1_pb2.DeviceHealth:
    return dra_health_v1_pb2.DeviceHealth(
        device=dra_health_v1_pb2.DeviceIdentifier(pool_name=POOL, device_name=device),
        health=health,
        health_check_timeout_seconds=timeout,
        message=message,
    )


@pytest.mark.parametrize(("timeout", "lasts"), [(0, 30), (-5, 30), (60, 60), (1, 1)])
def test_a_report_is_valid_for_its_timeout(timeout: int, lasts: int) -> None:
    clock = Clock()
    cache = HealthCache(30.0, clock)
    cache.update(DRIVER, [report("dev", GOOD, timeout=timeout, message="fine")])
    clock.now += lasts
    assert cache.get(DRIVER, POOL, "dev") == ResourceHealth("Healthy", "fine")
    clock.now += 0.1
    assert cache.get(DRIVER, POOL, "dev") == ResourceHealth("Unknown", "")


def test_a_device_that_is_not_in_a_report_keeps_its_state_until_it_times_out() -> None:
    clock = Clock()
    cache = HealthCache(30.0, clock)
    cache.update(DRIVER, [report("a", GOOD), report("b", BAD)])
    clock.now += 20
    cache.update(DRIVER, [report("a", BAD)])
    assert [cache.get(DRIVER, POOL, name).health for name in ("a", "b")] == ["Unhealthy", "Unhealthy"]
    clock.now += 20
    assert [cache.get(DRIVER, POOL, name).health for name in ("a", "b")] == ["Unhealthy", "Unknown"]


def test_clearing_a_driver_keeps_the_reports_of_others() -> None:
    cache = HealthCache(30.0)
    cache.update("a.example.com", [report("dev", GOOD)])
    cache.update("b.example.com", [report("dev", GOOD)])
    cache.clear("a.example.com")
    assert cache.get("a.example.com", POOL, "dev").health == "Unknown"
    assert cache.get("b.example.com", POOL, "dev").health == "Healthy"


@pytest.mark.parametrize(
    ("message", "cut"),
    [
        ("", ""),
        ("short", "short"),
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, "x" * 1021 + "..."),
        ("x" * 5000, "x" * 1021 + "..."),
        ("x" * 1020 + "éé", "x" * 1020 + "éé"),
        ("x" * 1020 + "ééé", "x" * 1020 + "..."),
    ],
)
def test_a_long_message_is_cut(message: str, cut: str) -> None:
    assert truncate_message(message) == cut
    assert len(cut.encode()) <= 1024


@pytest.mark.parametrize("version", ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"])
def test_health_changes_arrive(kubelet: KubeletEmulator, kubelet_dir: Path, version: str) -> None:
    with FakeDriver(kubelet_dir, versions=("v1.DRAPlugin", version)) as driver:
        kubelet.wait_for_driver(DRIVER)
        assert kubelet.health(DRIVER, POOL, "dev") == ResourceHealth("Unknown")
        driver.report((POOL, "dev", GOOD, ""))
        assert kubelet.wait_for_health(DRIVER, POOL, "dev", "Healthy")
        driver.report((POOL, "dev", BAD, "too hot"))
        assert kubelet.wait_for_health(DRIVER, POOL, "dev", "Unhealthy")
        assert kubelet.health(DRIVER, POOL, "dev").message == "too hot"


def test_a_report_that_expires_makes_the_device_unknown(
    api: LocalClient, kubelet_dir: Path, timing: KubeletTiming
) -> None:
    clock = Clock()
    with (
        KubeletEmulator(NODE, api, kubelet_dir, timing=timing, clock=clock) as kubelet,
        FakeDriver(kubelet_dir) as driver,
    ):
        kubelet.wait_for_driver(DRIVER)
        driver.report((POOL, "dev", GOOD, ""), timeout=1)
        assert kubelet.wait_for_health(DRIVER, POOL, "dev", "Healthy")
        clock.now += 1.1
        assert kubelet.wait_for_health(DRIVER, POOL, "dev", "Unknown")
        assert not kubelet.wait_for_health(DRIVER, POOL, "dev", "Healthy", timeout=0.05)


def test_the_end_of_a_stream_drops_its_reports_and_a_new_one_is_opened(
    kubelet: KubeletEmulator, kubelet_dir: Path
) -> None:
    with FakeDriver(kubelet_dir) as driver:
        kubelet.wait_for_driver(DRIVER)
        driver.report((POOL, "dev", GOOD, ""))
        assert kubelet.wait_for_health(DRIVER, POOL, "dev", "Healthy")
        driver.stop_service()
        assert kubelet.wait_for_health(DRIVER, POOL, "dev", "Unknown")
        driver.start_service()
        # On each new stream the fake sends all its reports again.
        assert kubelet.wait_for_health(DRIVER, POOL, "dev", "Healthy")
    assert kubelet.records.wait(lambda calls: any(call.kind == HEALTH for call in calls), LONG)


def test_health_that_is_not_advertised_is_not_asked_for(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir, versions=("v1.DRAPlugin",), health=False):
        kubelet.wait_for_driver(DRIVER)
    kubelet.stop()
    assert not kubelet.records.calls(HEALTH)


def test_a_driver_that_answers_unimplemented_is_not_asked_again(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    def asked(driver: str, times: int) -> bool:
        return kubelet.records.wait(
            lambda calls: sum((call.kind, call.driver) == (HEALTH, driver) for call in calls) >= times, LONG
        )

    other = "nic.example.com"
    with FakeDriver(kubelet_dir, versions=VERSIONS, health=False), FakeDriver(kubelet_dir, other) as ending:
        assert asked(DRIVER, 1)
        # The other driver, whose streams end at once, shows how often the kubelet asks in the meantime.
        ending.end_streams()
        assert asked(other, 5)
    (call,) = kubelet.records.calls(HEALTH, DRIVER)
    assert "UNIMPLEMENTED" in call.error


def test_old_kubelets_ask_every_driver_in_v1alpha1(api: LocalClient, kubelet_dir: Path, timing: KubeletTiming) -> None:
    with (
        KubeletEmulator(NODE, api, kubelet_dir, timing=timing, health="always") as kubelet,
        FakeDriver(kubelet_dir, versions=("v1.DRAPlugin",)) as driver,
    ):
        kubelet.wait_for_driver(DRIVER)
        driver.report((POOL, "dev", GOOD, ""))
        assert kubelet.wait_for_health(DRIVER, POOL, "dev", "Healthy")


def test_with_the_gate_off_no_driver_is_asked(api: LocalClient, kubelet_dir: Path, timing: KubeletTiming) -> None:
    with (
        KubeletEmulator(NODE, api, kubelet_dir, timing=timing, health="off") as kubelet,
        FakeDriver(kubelet_dir),
    ):
        kubelet.wait_for_driver(DRIVER)
    assert not kubelet.records.calls(HEALTH)
