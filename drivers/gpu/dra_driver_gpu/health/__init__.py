"""Which GPUs work: events and error counters of NVML as the health of devices, MIG and VFIO devices included."""

from dra_driver_gpu.health.monitor import HealthMonitor
from dra_driver_gpu.health.rules import HealthRules
from dra_driver_gpu.health.xid import BENIGN_XIDS, parse_xids

__all__ = ["BENIGN_XIDS", "HealthMonitor", "HealthRules", "parse_xids"]
