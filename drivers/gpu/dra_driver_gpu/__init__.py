"""The GPU driver: whole GPUs, MIG, VFIO, sharing and health of NVIDIA GPUs as DRA devices of `gpu.nvidia.com`."""

from dra_driver_gpu.config import GpuConfig, MigDeviceConfig, VfioDeviceConfig
from dra_driver_gpu.driver import GpuDriver
from dra_driver_gpu.settings import GpuSettings

__all__ = ["GpuConfig", "GpuDriver", "GpuSettings", "MigDeviceConfig", "VfioDeviceConfig"]
