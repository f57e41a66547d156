"""An NVML in memory for each test."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dra_driver_gpu.testing.nvml import FakeGpu, MemoryNvml


@pytest.fixture
def make_nvml() -> Callable[..., MemoryNvml]:
    """Makes an initialized NVML with these GPUs."""

    def make(*gpus: FakeGpu, privileged: bool = True) -> MemoryNvml:
        nvml = MemoryNvml(gpus, privileged=privileged)
        nvml.init()
        return nvml

    return make
