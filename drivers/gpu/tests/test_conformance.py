"""The drivers keep the contract, each as a process of its own: NVIDIA's with the real binding and GPUs in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from dra_driver_amd.testing import mi300x, write_gpus
from dra_driver_gpu.testing.memory_answers import MemoryAnswers
from dra_driver_gpu.testing.node import GpuNode
from dra_driver_gpu.testing.nvml import MemoryNvml, fake_gpu
from dra_driver_gpu.testing.nvml_stub import StubServer, build_stub

from dra_sdk.testing.conformance import Target, Timeouts, assert_conforms

GPUS = [fake_gpu("H100-80GB", 0), fake_gpu("L4", 1)]
SDK = {"restart", "rolling", "load"}
"""Levels of which the SDK alone decides; the tests of dra-driver-cpu have them."""
TIMEOUTS = Timeouts(quiet=0.5)
pytestmark = [pytest.mark.faults, pytest.mark.timeout(1200)]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A node's root with the stub library in it."""
    node = GpuNode(tmp_path / "host", GPUS)
    node.set_all_instances()
    for path in [path for path in node.host.dev.rglob("*") if path.is_file()]:
        path.unlink()
        os.mkfifo(path)  # a device node that needs no privilege to make
    (tmp_path / "stub").mkdir()
    library = f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{node.driver_version}"
    build_stub(tmp_path / "stub").replace(node.root / library)
    with StubServer(MemoryAnswers(MemoryNvml(GPUS))) as server:
        for name, value in {**server.environment, "DRA_GPU_DYNAMIC_MIG": "true"}.items():
            monkeypatch.setenv(name, value)
        yield node.root


def test_the_nvidia_driver_conforms_with_dynamic_mig(host: Path) -> None:
    without = SDK | {"nri", "containers"}  # it is no plugin of NRI
    results = assert_conforms(Target(driver="gpu", host_root=host, timeouts=TIMEOUTS), without=without)
    assert sum(not result.reason for result in results) > 0.9 * len(results)


def test_the_amd_driver_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With passthrough, so containers also get files that the SDK writes: device metadata."""
    monkeypatch.setenv("DRA_AMD_PASSTHROUGH", "true")
    host = write_gpus(tmp_path / "host", [mi300x(), mi300x("cpx", "nps4")])
    for path in [path for path in host.dev.rglob("*") if path.is_file()]:
        path.unlink()
        os.mkfifo(path)  # a device node that needs no privilege to make
    (tmp_path / "host/proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "host/proc/sys/kernel/random/boot_id").write_text("boot\n")
    assert_conforms(Target(driver="gpu-amd", host_root=host.root, timeouts=TIMEOUTS), without=SDK - {"load"})
