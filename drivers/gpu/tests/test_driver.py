"""The driver as a whole: many claims at once, watching, fixtures."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dra_driver_gpu
import pytest
from dra_driver_gpu.fixtures import FixtureDriver
from dra_driver_gpu.settings import GpuSettings
from dra_driver_gpu.testing.nvml import MODELS

from dra_sdk import RetriableError
from dra_sdk.testing import DriverHarness, FakeNode, claim, request
from dra_sdk.testing.waiting import wait

FIXTURES = Path(dra_driver_gpu.__file__).parent / "fixtures"


@pytest.mark.parametrize("name", sorted(path.parent.name for path in FIXTURES.glob("*/nvml.yaml")))
@pytest.mark.parametrize("dynamic", [False, True])
def test_its_fixtures_are_publishable(tmp_path, name, dynamic):
    node = FakeNode(tmp_path)
    node.file("/nvml.yaml", (FIXTURES / name / "nvml.yaml").read_text())
    driver = DriverHarness(FixtureDriver, node, settings=GpuSettings(dynamic_mig=dynamic))
    driver.assert_publishable("1.36")
    assert driver.devices


@pytest.mark.parametrize("name", ["gpu", "gpu-amd"])
def test_a_process_of_the_driver_loads_no_code_for_tests(tmp_path, name):
    (tmp_path / "nvml.yaml").write_text("gpus: [{model: L4}]")
    script = """
import sys
from pathlib import Path
import dra_sdk.cli.run, dra_sdk.node.runtime.process
from dra_sdk import DraError, Node
from dra_sdk.loader import load_driver
driver = load_driver(sys.argv[1])
try:
    print(*driver.discover(Node("n", Path(sys.argv[2]))))
except DraError as error:
    print(error)
print(sorted(name for name in sys.modules if name.startswith("dra_") and {"testing", "fixtures"} & {*name.split(".")}))
"""
    done = subprocess.run([sys.executable, "-c", script, name, tmp_path], capture_output=True, text=True, check=True)
    discovered, modules = done.stdout.splitlines()
    assert modules == "[]"
    assert "no NVIDIA driver is installed here" in discovered if name == "gpu" else "Device(" not in discovered


def test_fixtures_can_name_these_models():
    assert {"A100-40GB", "H100-80GB", "L4"} <= set(MODELS)


def test_seven_claims_divide_one_gpu_at_once(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    asked = [harness.driver.allocate(claim(request("mig", device_class="mig.nvidia.com"))) for _ in range(7)]
    claims = [harness.prepared(allocated) for allocated in asked]
    state = harness.memory.state(harness.memory.gpus[0].uuid)
    for _ in range(3):
        with ThreadPoolExecutor(7) as threads:
            list(threads.map(harness.driver.prepare, claims))
        assert sorted(instance.placement.start for instance in state.instances.values()) == list(range(7))
        with ThreadPoolExecutor(7) as threads:
            list(threads.map(harness.unprepare, claims))
        assert (state.instances, state.mig.current) == ({}, False)


def test_claims_come_and_go_at_once(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    asked = [harness.driver.allocate(claim(request("mig", device_class="mig.nvidia.com"))) for _ in range(4)]

    def churn(allocated):
        mine = harness.prepared(allocated)
        for _ in range(5):
            harness.driver.prepare(mine)
            harness.unprepare(mine)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(churn, asked))
    state = harness.memory.state(harness.memory.gpus[0].uuid)
    assert (state.instances, state.mig.current) == ({}, False)
    harness.driver.assert_clean()


def test_it_notices_gpus_that_come_and_go(make_gpus, monkeypatch):
    monkeypatch.setattr("dra_driver_gpu.driver.WATCH_SECONDS", 0.02)
    harness = make_gpus("L4", "L4")
    with harness.driver.watching() as watch:
        looked = len(harness.memory.faults.calls)
        wait(lambda: len(harness.memory.faults.calls) > looked + 100)
        assert watch.reports <= 2
        harness.memory.lose(harness.memory.gpus[0].uuid)
        (pool,) = watch.wait_changed()
    assert [device.name for device in pool.devices] == ["gpu-1"]


def test_closed_nvml_is_not_waited_for_beyond_the_call(make_gpus, monkeypatch):
    """Later the kubelet has given up, and nobody would get the reason."""
    harness = make_gpus("L4")
    asked = harness.driver.allocate(claim("gpu"))
    monkeypatch.setattr("dra_driver_gpu.driver.CALL_SECONDS", 0.2)
    began = time.monotonic()
    closed = harness.driver.plugin.nvidia_node(harness.node.node).without_nvml()
    with closed, pytest.raises(RetriableError, match="NVML is closed while a GPU changes its driver"):
        harness.driver.prepare(harness.prepared(asked))
    assert time.monotonic() - began < 10


def test_containers_share_a_claim_and_a_repeated_prepare_touches_nothing(make_gpus):
    harness = make_gpus("L4")
    prepared = harness.driver.prepare(claim("gpu"), containers={"a": ["gpu"], "b": ["gpu"]})
    assert prepared.container("a").cdi_ids == prepared.container("b").cdi_ids
    calls = len(harness.memory.faults.calls)
    assert harness.driver.prepare(prepared).devices == prepared.devices
    assert len(harness.memory.faults.calls) == calls


def test_share_ids_are_in_the_answer(make_gpus):
    harness = make_gpus("L4", sharing="2")
    first, second = (harness.driver.prepare(claim("gpu")) for _ in range(2))
    assert first.devices[0].share_id
    assert first.devices[0].share_id != second.devices[0].share_id
