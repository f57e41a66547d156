from __future__ import annotations

from pathlib import Path

import pytest

from dra_sdk.tools.simulator.kubelet import ClaimRef, DriverCallError, KubeletEmulator, NotRegisteredError
from dra_sdk.tools.simulator.kubelet.plugins import chosen_service
from tests.tools.simulator.fakes import FakeDriver
from tests.waiting import LONG

DRIVER = "gpu.example.com"
CLAIM = ClaimRef("default", "claim-1", "uid-1")


def connections(path: Path) -> set[str]:
    """The inodes of the connected sockets that the server behind `path` has accepted."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {line[6] for line in lines if line[-1] == str(path) and line[5] == "03"}


def test_without_an_instance_there_is_nothing_to_call(kubelet: KubeletEmulator) -> None:
    with pytest.raises(NotRegisteredError, match=r"DRA driver gpu\.example\.com is not registered"):
        kubelet.prepare(DRIVER, [CLAIM])


def test_one_connection_serves_all_calls(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir) as driver:
        kubelet.wait_for_driver(DRIVER)
        first = connections(driver.service)
        for _ in range(3):
            kubelet.prepare(DRIVER, [CLAIM])
            kubelet.unprepare(DRIVER, [CLAIM])
        driver.report(("node-1", "dev", 1, ""))
        assert kubelet.wait_for_health(DRIVER, "node-1", "dev", "Healthy")
        assert connections(driver.service) == first
    assert len(first) == 1


def test_the_newest_connected_instance_is_called(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir, instance="old") as old:
        kubelet.wait_for_driver(DRIVER)
        with FakeDriver(kubelet_dir, instance="new") as new:
            kubelet.wait_for_driver(DRIVER, instances=2)
            kubelet.prepare(DRIVER, [CLAIM])
            assert (len(old.prepared), len(new.prepared)) == (0, 1)
            new.stop_service()
            assert kubelet._running.plugins.wait(lambda infos: [i.connected for i in infos] == [True, False], LONG)
            kubelet.prepare(DRIVER, [CLAIM])
            assert (len(old.prepared), len(new.prepared)) == (1, 1)


def test_an_instance_that_comes_back_is_reconnected(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir) as driver:
        kubelet.wait_for_driver(DRIVER)
        driver.stop_service()
        assert kubelet.wait_for_no_driver(DRIVER)
        with pytest.raises(DriverCallError) as caught:
            kubelet.prepare(DRIVER, [CLAIM])
        assert caught.value.code == "UNAVAILABLE"
        driver.start_service()
        kubelet.wait_for_driver(DRIVER)
        kubelet.prepare(DRIVER, [CLAIM])
    assert driver.notified == [(True, "")]


def test_the_service_may_start_after_registration(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    driver = FakeDriver(kubelet_dir)
    driver.start_registration()
    (early,) = kubelet.wait_for_driver(DRIVER, connected=False)
    assert not early.connected
    driver.start_service()
    kubelet.wait_for_driver(DRIVER)
    assert kubelet.prepare(DRIVER, [CLAIM])[CLAIM.uid]
    driver.stop()


def test_two_drivers_live_side_by_side(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir, "a.example.com") as a, FakeDriver(kubelet_dir, "b.example.com") as b:
        kubelet.wait_for_driver("a.example.com")
        kubelet.wait_for_driver("b.example.com")
        kubelet.prepare("b.example.com", [CLAIM])
    assert (a.prepared, len(b.prepared)) == ([], 1)


def test_chosen_service_is_the_first_that_is_known() -> None:
    assert chosen_service("s", "d", ("v2.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAPlugin")) == "v1beta1.DRAPlugin"
