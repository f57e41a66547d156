"""NVML in memory: GPUs that keep the rules of NVML and MIG, for tests, fixtures and simulated nodes."""

from dra_driver_gpu.testing.nvml.driver import NvmlFaults
from dra_driver_gpu.testing.nvml.fixture import FIXTURE_FILE, read_fixture
from dra_driver_gpu.testing.nvml.library import MemoryNvml
from dra_driver_gpu.testing.nvml.models import MODELS, FakeGpu, GpuModel, fake_gpu, model
from dra_driver_gpu.testing.nvml.state import ProcessKind

__all__ = [
    "FIXTURE_FILE",
    "MODELS",
    "FakeGpu",
    "GpuModel",
    "MemoryNvml",
    "NvmlFaults",
    "ProcessKind",
    "fake_gpu",
    "model",
    "read_fixture",
]
