"""The real NVML: the driver's own library through nvidia-ml-py."""

from dra_driver_gpu.nvml.real.binding import LIBRARY_DIRS, find_library, inside
from dra_driver_gpu.nvml.real.library import RealNvml

__all__ = ["LIBRARY_DIRS", "RealNvml", "find_library", "inside"]
