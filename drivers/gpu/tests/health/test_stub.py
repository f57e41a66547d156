"""The monitor with the real binding, through the binary interface of the stub library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from dra_driver_gpu.describe import PublishOptions
from dra_driver_gpu.health import HealthMonitor, HealthRules
from dra_driver_gpu.nvml.library import NvmlLibrary
from dra_driver_gpu.nvml.memory import fake_gpu
from dra_driver_gpu.nvml.real import RealNvml
from dra_driver_gpu.nvml.values import EccCounter, EccKind, EventType, RecoveryAction, RemappedRows
from dra_driver_gpu.testing import GpuNode, StubState, build_stub

from dra_sdk import HealthStatus, Node

GPUS = [fake_gpu("H100-80GB", 0), fake_gpu("L4", 1)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubState:
    made = StubState(tmp_path / "nvml", GPUS)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def reports(library: Path, state: StubState, tmp_path: Path) -> Iterator[Any]:
    root = GpuNode(tmp_path / "root", GPUS).root
    monitor = HealthMonitor(
        NvmlLibrary(RealNvml(library=library)), PublishOptions(), HealthRules(interval=0.05, survey=0.0)
    )
    found = monitor.watch(Node("node-1", root), Event())
    next(found)
    yield found
    found.close()


def unhealthy(reports: Any) -> dict[str, str]:
    return {each.device: each.message for each in next(reports) if each.status is HealthStatus.UNHEALTHY}


def test_events(reports: Any, state: StubState) -> None:
    assert unhealthy(reports) == {}
    state.inject_event(GPUS[1].uuid, EventType.XID_CRITICAL_ERROR, 31)
    state.inject_event(GPUS[1].uuid, EventType.XID_CRITICAL_ERROR, 62)
    found = next(found for _ in range(1000) if (found := unhealthy(reports)))  # on a busy machine one event per report
    assert found == {"gpu-1": "XID 62 (internal microcontroller halt)"}


def test_counters_and_remapped_rows(reports: Any, state: StubState) -> None:
    state.set_remapped_rows(GPUS[0].uuid, RemappedRows(0, 1, pending=True, failed=False))
    assert list(unhealthy(reports)) == ["gpu-0"]
    state.set_remapped_rows(GPUS[0].uuid, RemappedRows(0, 1, pending=False, failed=False))
    assert unhealthy(reports) == {}
    state.set_ecc_errors(GPUS[0].uuid, EccKind.UNCORRECTED, EccCounter.VOLATILE, 1)
    next(reports)
    assert unhealthy(reports) == {"gpu-0": "double-bit ECC error"}


def test_a_lost_gpu_that_is_reset(reports: Any, state: StubState) -> None:
    state.lose(GPUS[0].uuid)
    assert unhealthy(reports) == {"gpu-0": "the GPU is lost"}
    state.set_recovery_action(GPUS[1].uuid, RecoveryAction.NODE_REBOOT)
    assert unhealthy(reports)["gpu-1"] == "the driver asks for NODE_REBOOT"
    state.reset(GPUS[0].uuid)
    assert list(unhealthy(reports)) == ["gpu-1"]
