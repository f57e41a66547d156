"""DRA driver for AMD GPUs and their partitions, read from sysfs and the KFD topology alone; no library is needed."""

from dra_driver_amd.config import GpuConfig
from dra_driver_amd.driver import AmdGpuDriver

__all__ = ["AmdGpuDriver", "GpuConfig"]
