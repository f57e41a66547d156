"""Health of GPUs: events and error counters of NVML as the health of devices, MIG and VFIO devices included."""

from dra_driver_gpu.health.events import BENIGN_XIDS
from dra_driver_gpu.health.monitor import GpuHealthMonitor, HealthRules

__all__ = ["BENIGN_XIDS", "GpuHealthMonitor", "HealthRules"]
