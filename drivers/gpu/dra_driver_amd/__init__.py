"""DRA driver for AMD GPUs and their partitions, read from sysfs and the KFD topology alone; it needs no library."""

from dra_driver_amd.driver import AmdGpuDriver, GpuConfig

__all__ = ["AmdGpuDriver", "GpuConfig"]
