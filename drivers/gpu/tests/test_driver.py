"""The driver as a whole: many claims at once, watching, fixtures."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dra_driver_gpu
import pytest
from dra_driver_gpu.driver import GpuDriver
from dra_driver_gpu.nvml.memory import MODELS
from dra_driver_gpu.settings import GpuSettings

from dra_sdk import RetriableError
from dra_sdk.testing import DriverHarness, FakeNode, claim, request
from dra_sdk.testing.waiting import wait

FIXTURES = Path(dra_driver_gpu.__file__).parent / "fixtures"


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.iterdir()))
@pytest.mark.parametrize("dynamic", [False, True])
def test_its_fixtures_are_publishable(tmp_path, name, dynamic):
    node = FakeNode(tmp_path)
    node.file("/nvml.yaml", (FIXTURES / name / "nvml.yaml").read_text())
    driver = DriverHarness(lambda: GpuDriver(GpuSettings(dynamic_mig=dynamic)), node)
    driver.assert_publishable("1.36")
    assert driver.devices


def test_fixtures_can_name_these_models():
    assert {"A100-40GB", "H100-80GB", "L4"} <= set(MODELS)


def test_seven_claims_divide_one_gpu_at_once(make_gpus):
    rig = make_gpus("H100-80GB", dynamic_mig=True)
    asked = [rig.driver.allocate(claim(request("mig", device_class="mig.nvidia.com"))) for _ in range(7)]
    claims = [rig.prepared(each) for each in asked]
    state = rig.memory.state(rig.memory.gpus[0].uuid)
    for _ in range(3):
        with ThreadPoolExecutor(7) as threads:
            list(threads.map(rig.driver.prepare, claims))
        assert sorted(each.placement.start for each in state.instances.values()) == list(range(7))
        with ThreadPoolExecutor(7) as threads:
            list(threads.map(rig.unprepare, claims))
        assert (state.instances, state.mig.current) == ({}, False)


def test_claims_come_and_go_at_once(make_gpus):
    rig = make_gpus("H100-80GB", dynamic_mig=True)
    asked = [rig.driver.allocate(claim(request("mig", device_class="mig.nvidia.com"))) for _ in range(4)]

    def churn(allocated):
        mine = rig.prepared(allocated)
        for _ in range(5):
            rig.driver.prepare(mine)
            rig.unprepare(mine)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(churn, asked))
    state = rig.memory.state(rig.memory.gpus[0].uuid)
    assert (state.instances, state.mig.current) == ({}, False)
    rig.driver.assert_clean()


def test_it_notices_gpus_that_come_and_go(make_gpus, monkeypatch):
    monkeypatch.setattr("dra_driver_gpu.driver.WATCH_SECONDS", 0.02)
    rig = make_gpus("L4", "L4")
    with rig.driver.watching() as watch:
        looked = len(rig.memory.faults.calls)
        wait(lambda: len(rig.memory.faults.calls) > looked + 100)
        assert watch.reports <= 2
        rig.memory.lose(rig.memory.gpus[0].uuid)
        (pool,) = watch.wait_changed()
    assert [device.name for device in pool.devices] == ["gpu-1"]


def test_closed_nvml_is_not_waited_for_beyond_the_call(make_gpus, monkeypatch):
    """Later the kubelet has given up, and nobody would get the reason."""
    rig = make_gpus("L4")
    asked = rig.driver.allocate(claim("gpu"))
    monkeypatch.setattr("dra_driver_gpu.driver.CALL_SECONDS", 0.2)
    began = time.monotonic()
    closed = rig.driver.plugin.nvidia_node(rig.node.node).without_nvml()
    with closed, pytest.raises(RetriableError, match="NVML is closed while a GPU changes its driver"):
        rig.driver.prepare(rig.prepared(asked))
    assert time.monotonic() - began < 10


def test_containers_share_a_claim_and_a_repeated_prepare_touches_nothing(make_gpus):
    rig = make_gpus("L4")
    prepared = rig.driver.prepare(claim("gpu"), containers={"a": ["gpu"], "b": ["gpu"]})
    assert prepared.container("a").cdi_ids == prepared.container("b").cdi_ids
    calls = len(rig.memory.faults.calls)
    assert rig.driver.prepare(prepared).devices == prepared.devices
    assert len(rig.memory.faults.calls) == calls


def test_share_ids_are_in_the_answer(make_gpus):
    rig = make_gpus("L4", sharing="2")
    first, second = (rig.driver.prepare(claim("gpu")) for _ in range(2))
    assert first.devices[0].share_id
    assert first.devices[0].share_id != second.devices[0].share_id
