"""The driver, killed at every line of its own and at every step that the SDK takes on disk."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from dra_driver_amd.testing import KernelEffects, mi300x

from dra_sdk.testing import claim, request
from dra_sdk.testing.crashes import assert_survives_crashes

pytestmark = pytest.mark.faults

pytest_plugins = ["dra_sdk.testing.plugin"]


class WholeWrites(KernelEffects):
    """A kernel that finishes what is written to it although the writer is killed."""

    def write(self, path: Path, text: str, timeout: float | None = None) -> None:
        trace = sys.gettrace()
        sys.settrace(None)
        try:
            super().write(path, text, timeout)
        finally:
            sys.settrace(trace)


@pytest.fixture
def survives(make_node: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    def check(gpu: Any, made_claim: Any, **settings: Any) -> int:
        made = make_node(gpu, **settings)
        made.effects = made.make_effects(WholeWrites, [gpu])
        return assert_survives_crashes(made.driver, made_claim)

    return check


def test_dividing_a_gpu_survives_crashes(survives: Any) -> None:
    config = {"apiVersion": "gpu.resource.amd.com/v1alpha1", "kind": "GpuConfig", "computePartition": "DPX"}
    assert survives(mi300x(), claim("gpu", config=config), partitioning=True) > 100


def test_passing_a_gpu_through_survives_crashes(survives: Any) -> None:
    where = 'device.attributes["gpu.amd.com"].type == "vfio"'
    assert survives(mi300x(), claim(request("vm", where=where)), passthrough=True) > 100
