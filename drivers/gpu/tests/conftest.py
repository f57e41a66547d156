"""Nodes with GPUs for the tests of the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dra_driver_gpu.config import API_VERSION
from dra_driver_gpu.testing.harness import GpuHarness
from dra_driver_gpu.testing.nvml import FakeGpu, fake_gpu

from dra_sdk.hardware.node_access import children
from dra_sdk.testing.waiting import wait


@pytest.fixture(autouse=True, scope="session")
def daemons_end_with_the_tests() -> Iterator[None]:
    """A daemon may outlive the driver, but not the tests."""
    yield
    wait(lambda: not children())


@pytest.fixture
def make_gpus(tmp_path: Path) -> Callable[..., GpuHarness]:
    """Makes a node with GPUs of these models and the driver on it."""

    def make(*models: str | FakeGpu, **settings: Any) -> GpuHarness:
        gpus = [fake_gpu(model, minor) if isinstance(model, str) else model for minor, model in enumerate(models)]
        return GpuHarness(tmp_path, gpus, **settings)

    return make


@pytest.fixture
def make_node(make_gpus: Callable[..., GpuHarness]) -> Iterator[Callable[..., GpuHarness]]:
    """As `make_gpus`; the daemons of the node end with the test."""
    made: list[GpuHarness] = []

    def make(*models: str | FakeGpu, **settings: Any) -> GpuHarness:
        made.append(make_gpus(*models, **settings))
        return made[-1]

    yield make
    for harness in made:
        harness.effects.kill(harness.effects.running_daemons(), force=True)


@pytest.fixture
def config() -> Callable[..., dict[str, Any]]:
    """Configuration as a user writes it: `config("GpuConfig", strategy="MPS", mpsConfig={…})`."""

    def write(kind: str, **sharing: Any) -> dict[str, Any]:
        return {"apiVersion": API_VERSION, "kind": kind, "sharing": sharing}

    return write


@pytest.fixture
def make_harness_at() -> type[GpuHarness]:
    """A node in a directory of its own."""
    return GpuHarness
