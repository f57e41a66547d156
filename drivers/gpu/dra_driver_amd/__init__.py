"""DRA driver for AMD GPUs, their partitions and virtual functions. It reads sysfs and KFD, and needs no library."""

from dra_driver_amd.config import GpuConfig, VfioDeviceConfig
from dra_driver_amd.driver import AmdGpuDriver

__all__ = ["AmdGpuDriver", "GpuConfig", "VfioDeviceConfig"]
