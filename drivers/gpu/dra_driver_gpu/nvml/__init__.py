"""NVML, narrowed to what a DRA driver needs: protocols and their real implementation."""

from dra_driver_gpu.nvml.api import (
    ComputeInstance,
    ComputeInstanceInfo,
    EventSet,
    Gpu,
    GpuInstance,
    GpuInstanceInfo,
    MigDevice,
    Nvml,
    NvmlEvent,
)
from dra_driver_gpu.nvml.errors import NvmlError, ReturnCode

__all__ = [
    "ComputeInstance",
    "ComputeInstanceInfo",
    "EventSet",
    "Gpu",
    "GpuInstance",
    "GpuInstanceInfo",
    "MigDevice",
    "Nvml",
    "NvmlError",
    "NvmlEvent",
    "ReturnCode",
]
