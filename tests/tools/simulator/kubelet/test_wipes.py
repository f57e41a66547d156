from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator import statuses
from dra_sdk.tools.simulator.kubelet.emulator import KubeletEmulator
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.objects import Write
from tests.tools.simulator.fakes import FakeDriver

DRIVER = "gpu.example.com"


@pytest.fixture
def timing(timing: KubeletTiming) -> KubeletTiming:
    return replace(timing, wipe_delay=0.3, wipe_retry=0.05)


def publish(api: LocalClient, name: str, driver: str = DRIVER, node: str = "node-1") -> None:
    spec = {"driver": driver, "nodeName": node, "pool": {"name": node}}
    api.create("resourceslices", {"metadata": {"name": name}, "spec": spec})


def names(api: LocalClient) -> list[str]:
    return [entry["metadata"]["name"] for entry in api.list("resourceslices")]


def wait_gone(api: LocalClient, name: str) -> None:
    wait(lambda: name not in names(api))


def test_a_start_wipes_the_nodes_slices_of_all_drivers(
    api: LocalClient, kubelet_dir: Path, timing: KubeletTiming
) -> None:
    publish(api, "mine")
    publish(api, "other-driver", "nic.example.com")
    publish(api, "other-node", node="node-2")
    with KubeletEmulator("node-1", api, kubelet_dir, timing=timing):
        assert names(api) == ["other-node"]


def test_a_lost_service_is_wiped_after_the_delay(api: LocalClient, kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir) as driver:
        kubelet.wait_for_driver(DRIVER)
        publish(api, "mine")
        publish(api, "other-driver", "nic.example.com")
        lost = time.monotonic()
        driver.stop_service()
        wait_gone(api, "mine")
        assert time.monotonic() - lost >= kubelet.timing.wipe_delay
    assert names(api) == ["other-driver"]


def test_a_deregistered_driver_is_wiped_after_the_delay(
    api: LocalClient, kubelet: KubeletEmulator, kubelet_dir: Path
) -> None:
    with FakeDriver(kubelet_dir) as driver:
        kubelet.wait_for_driver(DRIVER)
        publish(api, "mine")
        lost = time.monotonic()
        driver.stop_registration()
        wait_gone(api, "mine")
        assert time.monotonic() - lost >= kubelet.timing.wipe_delay
        assert names(api) == []


def test_a_driver_that_is_back_in_time_keeps_its_slices(
    api: LocalClient, kubelet_dir: Path, timing: KubeletTiming
) -> None:
    patient = replace(timing, wipe_delay=3600.0)
    with (
        KubeletEmulator("node-1", api, kubelet_dir, timing=patient) as kubelet,
        FakeDriver(kubelet_dir) as driver,
    ):
        kubelet.wait_for_driver(DRIVER)
        publish(api, "mine")
        before = api.get("resourceslices", "mine")
        driver.stop()
        assert kubelet.wait_for_no_driver(DRIVER)
        driver.start()
        kubelet.wait_for_driver(DRIVER)
        # No wipe is pending, so none will come.
        assert not kubelet.pending_wipes
        assert api.get("resourceslices", "mine") == before


def test_slices_stay_while_another_plugin_of_the_driver_is_connected(
    api: LocalClient, kubelet: KubeletEmulator, kubelet_dir: Path
) -> None:
    with FakeDriver(kubelet_dir, instance="old") as old, FakeDriver(kubelet_dir, instance="new"):
        kubelet.wait_for_driver(DRIVER, instances=2)
        publish(api, "mine")
        old.stop()
        assert kubelet.wait_for_plugins(lambda infos: len(infos) == 1, LONG)
        assert not kubelet.pending_wipes
    wait_gone(api, "mine")


def test_a_wipe_is_tried_until_the_api_server_has_done_it(
    api: LocalClient, kubelet: KubeletEmulator, kubelet_dir: Path
) -> None:
    refused: list[float] = []

    def refuse(write: Write) -> None:
        if write.verb == "delete" and len(refused) < 3:
            refused.append(time.monotonic())
            raise statuses.internal_error("etcd is away")

    with FakeDriver(kubelet_dir) as driver:
        kubelet.wait_for_driver(DRIVER)
        publish(api, "mine")
        api.store.admit.append(refuse)
        driver.stop()
        wait_gone(api, "mine")
    first, second, third = refused
    assert third - second > 1.5 * kubelet.timing.wipe_retry
    assert second - first >= kubelet.timing.wipe_retry


def test_stopping_the_kubelet_wipes_nothing(api: LocalClient, kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir):
        kubelet.wait_for_driver(DRIVER)
        publish(api, "mine")
        kubelet.stop()
        assert names(api) == ["mine"]
