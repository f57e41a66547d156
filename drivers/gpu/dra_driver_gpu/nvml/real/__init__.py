"""The real NVML: the driver's own library, through nvidia-ml-py."""

from dra_driver_gpu.nvml.real.library import RealNvml, find_library

__all__ = ["RealNvml", "find_library"]
