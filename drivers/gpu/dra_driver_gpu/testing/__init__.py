"""For tests of the GPU driver: a stub of the NVML library, and nodes with GPUs that are made of files."""

from dra_driver_gpu.testing.fabric import MemoryFabricManager
from dra_driver_gpu.testing.memory_answers import MemoryAnswers
from dra_driver_gpu.testing.node import GpuNode, write_tools
from dra_driver_gpu.testing.nvml_stub import Answer, GoldenAnswers, StubServer, build_stub
from dra_driver_gpu.testing.rig import GpuRig

__all__ = [
    "Answer",
    "GoldenAnswers",
    "GpuNode",
    "GpuRig",
    "MemoryAnswers",
    "MemoryFabricManager",
    "StubServer",
    "build_stub",
    "write_tools",
]
