"""For tests of the GPU driver: a stub of the NVML library, and nodes with GPUs that are made of files."""

from dra_driver_gpu.testing.fabric import MemoryFabricManager
from dra_driver_gpu.testing.node import GpuNode, write_tools
from dra_driver_gpu.testing.nvml_stub import GpuControl, StubState, build_stub
from dra_driver_gpu.testing.rig import GpuRig

__all__ = ["GpuControl", "GpuNode", "GpuRig", "MemoryFabricManager", "StubState", "build_stub", "write_tools"]
