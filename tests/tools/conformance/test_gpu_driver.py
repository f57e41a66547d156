"""The GPU driver passes with dynamic MIG: as a process of its own, with the real NVML binding and GPUs in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from dra_driver_gpu.nvml.memory import MemoryNvml, fake_gpu
from dra_driver_gpu.testing import GpuNode, MemoryAnswers, StubServer, build_stub

from dra_sdk.tools.conformance.check import Severity, run_checks
from dra_sdk.tools.conformance.checks import CHECKS, NRI_LEVELS
from dra_sdk.tools.conformance.target import Target
from tests.tools.conformance.test_own_drivers import TIMEOUTS

GPUS = [fake_gpu("H100-80GB", 0), fake_gpu("L4", 1)]
# Restarts, updates and load are handled by the SDK; test_own_drivers.py checks them.
SKIPPED_LEVELS = {"restart", "rolling", "load", *NRI_LEVELS}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A node's root with the stub library in it."""
    node = GpuNode(tmp_path / "host", GPUS)
    node.set_all_instances()
    for path in [each for each in node.host.dev.rglob("*") if each.is_file()]:
        path.unlink()
        os.mkfifo(path)  # a device node that needs no privilege to make
    (tmp_path / "stub").mkdir()
    library = f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{node.driver_version}"
    build_stub(tmp_path / "stub").replace(node.root / library)
    with StubServer(MemoryAnswers(MemoryNvml(GPUS))) as server:
        for name, value in {**server.environment, "DRA_GPU_DYNAMIC_MIG": "true"}.items():
            monkeypatch.setenv(name, value)
        yield node.root


@pytest.mark.timeout(1200)
def test_the_gpu_driver_conforms(host: Path) -> None:
    checks = [check for check in CHECKS if check.level not in SKIPPED_LEVELS]
    with Target(driver="gpu", host_root=host, timeouts=TIMEOUTS).open() as run:
        results = run_checks(run, checks)
    failed = [each for each in results if each.failed and each.check.severity is Severity.MUST]
    assert [f"{each.check.id}: {each.reason}" for each in failed] == []
    assert sum(not each.reason for each in results) > 0.9 * len(checks)
