"""NVML, narrowed to what a DRA driver needs: protocols, with a real implementation and one in memory."""

from dra_driver_gpu.nvml.api import (
    ComputeInstance,
    ComputeInstanceInfo,
    Event,
    EventSet,
    Gpu,
    GpuInstance,
    GpuInstanceInfo,
    MigDevice,
    Nvml,
)
from dra_driver_gpu.nvml.errors import NvmlError, ReturnCode

__all__ = [
    "ComputeInstance",
    "ComputeInstanceInfo",
    "Event",
    "EventSet",
    "Gpu",
    "GpuInstance",
    "GpuInstanceInfo",
    "MigDevice",
    "Nvml",
    "NvmlError",
    "ReturnCode",
]
