"""The GPUs of a node as devices of ResourceSlices: whole, divided by MIG, or for virtual machines."""

from dra_driver_gpu.describe.inventory import GpuInfo, MigProfile, read_inventory
from dra_driver_gpu.describe.pool import PublishOptions, make_pool

__all__ = ["GpuInfo", "MigProfile", "PublishOptions", "make_pool", "read_inventory"]
