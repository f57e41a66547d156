"""NVML in memory: GPUs that keep the rules of NVML and MIG, for tests, fixtures and simulated nodes."""

from dra_driver_gpu.nvml.memory.driver import Faults
from dra_driver_gpu.nvml.memory.fixture import FIXTURE_FILE, read_fixture
from dra_driver_gpu.nvml.memory.library import MemoryNvml
from dra_driver_gpu.nvml.memory.models import MODELS, FakeGpu, GpuModel, fake_gpu, model
from dra_driver_gpu.nvml.memory.state import ProcessKind

__all__ = [
    "FIXTURE_FILE",
    "MODELS",
    "FakeGpu",
    "Faults",
    "GpuModel",
    "MemoryNvml",
    "ProcessKind",
    "fake_gpu",
    "model",
    "read_fixture",
]
