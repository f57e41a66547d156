from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.tools.simulator.kubelet import DeviceHealth, KubeletEmulator, KubeletTiming
from dra_sdk.tools.simulator.kubelet.health import HealthCache, cut_message
from dra_sdk.tools.simulator.kubelet.records import HEALTH
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.wire.proto import dra_health_v1_pb2
from tests.tools.simulator.fakes import VERSIONS, FakeDriver
from tests.waiting import LONG

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
def test_a_report_lasts_for_its_timeout(timeout: int, lasts: int) -> None:
    clock = Clock()
    cache = HealthCache(30.0, clock)
    cache.update(DRIVER, [report("dev", GOOD, timeout=timeout, message="fine")])
    clock.now += lasts
    assert cache.get(DRIVER, POOL, "dev") == DeviceHealth("Healthy", "fine")
    clock.now += 0.1
    assert cache.get(DRIVER, POOL, "dev") == DeviceHealth("Unknown", "")


def test_a_device_that_is_not_in_a_report_keeps_its_state_until_it_times_out() -> None:
    clock = Clock()
    cache = HealthCache(30.0, clock)
    cache.update(DRIVER, [report("a", GOOD), report("b", BAD)])
    clock.now += 20
    cache.update(DRIVER, [report("a", BAD)])
    assert [cache.get(DRIVER, POOL, name).health for name in ("a", "b")] == ["Unhealthy", "Unhealthy"]
    clock.now += 20
    assert [cache.get(DRIVER, POOL, name).health for name in ("a", "b")] == ["Unhealthy", "Unknown"]


def test_clearing_a_driver_leaves_the_others() -> None:
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
    assert cut_message(message) == cut
    assert len(cut.encode()) <= 1024


@pytest.mark.parametrize("version", ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"])
def test_health_changes_arrive(kubelet: KubeletEmulator, kubelet_dir: Path, version: str) -> None:
    with FakeDriver(kubelet_dir, versions=("v1.DRAPlugin", version)) as driver:
        kubelet.wait_for_driver(DRIVER)
        assert kubelet.health(DRIVER, POOL, "dev") == DeviceHealth("Unknown")
        driver.report((POOL, "dev", GOOD, ""))
        assert kubelet.wait_for_health(DRIVER, POOL, "dev", "Healthy")
        driver.report((POOL, "dev", BAD, "too hot"))
        assert kubelet.wait_for_health(DRIVER, POOL, "dev", "Unhealthy")
        assert kubelet.health(DRIVER, POOL, "dev").message == "too hot"


def test_a_device_decays_to_unknown(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir) as driver:
        kubelet.wait_for_driver(DRIVER)
        clock = kubelet._running.health._clock = Clock()
        driver.report((POOL, "dev", GOOD, ""), timeout=1)
        assert kubelet.wait_for_health(DRIVER, POOL, "dev", "Healthy")
        clock.now += 1.1
        assert kubelet.wait_for_health(DRIVER, POOL, "dev", "Unknown")
        assert not kubelet.wait_for_health(DRIVER, POOL, "dev", "Healthy", timeout=0.05)


def test_the_end_of_a_stream_forgets_the_driver_and_a_new_one_is_opened(
    kubelet: KubeletEmulator, kubelet_dir: Path
) -> None:
    with FakeDriver(kubelet_dir) as driver:
        kubelet.wait_for_driver(DRIVER)
        driver.report((POOL, "dev", GOOD, ""))
        assert kubelet.wait_for_health(DRIVER, POOL, "dev", "Healthy")
        driver.stop_service()
        assert kubelet.wait_for_health(DRIVER, POOL, "dev", "Unknown")
        driver.start_service()
        # The fake sends what it has reported again on each new stream.
        assert kubelet.wait_for_health(DRIVER, POOL, "dev", "Healthy")
    assert kubelet.records.wait(lambda calls: any(call.kind == HEALTH for call in calls), LONG)


def test_health_that_is_not_advertised_is_not_asked_for(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir, versions=("v1.DRAPlugin",), health=False):
        kubelet.wait_for_driver(DRIVER)
    kubelet.stop()
    assert not kubelet.calls(HEALTH)


def test_unimplemented_ends_the_asking(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir, versions=VERSIONS, health=False):
        kubelet.wait_for_driver(DRIVER)
        assert kubelet.records.wait(lambda calls: any(call.kind == HEALTH for call in calls), LONG)
        (monitor,) = kubelet._running.plugins._health.values()
        monitor()
    (call,) = kubelet.calls(HEALTH)
    assert "UNIMPLEMENTED" in call.error


def test_old_kubelets_ask_everyone_in_v1alpha1(api: LocalClient, kubelet_dir: Path, timing: KubeletTiming) -> None:
    with (
        KubeletEmulator("node-1", api, kubelet_dir, timing=timing, health="always") as kubelet,
        FakeDriver(kubelet_dir, versions=("v1.DRAPlugin",)) as driver,
    ):
        kubelet.wait_for_driver(DRIVER)
        driver.report((POOL, "dev", GOOD, ""))
        assert kubelet.wait_for_health(DRIVER, POOL, "dev", "Healthy")


def test_with_the_gate_off_nobody_is_asked(api: LocalClient, kubelet_dir: Path, timing: KubeletTiming) -> None:
    with (
        KubeletEmulator("node-1", api, kubelet_dir, timing=replace(timing), health="off") as kubelet,
        FakeDriver(kubelet_dir),
    ):
        kubelet.wait_for_driver(DRIVER)
    assert not kubelet.calls(HEALTH)
