"""What tests of the GPU driver need: a stub of the NVML library, and nodes with GPUs written to a directory."""

from dra_driver_gpu.testing.control import GpuControl
from dra_driver_gpu.testing.effects import NodeEffects
from dra_driver_gpu.testing.node import GpuNode
from dra_driver_gpu.testing.nvml_stub import StubState, build_stub
from dra_driver_gpu.testing.rig import GpuRig

__all__ = ["GpuControl", "GpuNode", "GpuRig", "NodeEffects", "StubState", "build_stub"]
