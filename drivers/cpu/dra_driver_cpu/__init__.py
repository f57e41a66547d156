"""DRA drivers for CPUs and memory: exclusive CPUs of one NUMA node, by number; memory and huge pages of one, by size.

Names of devices, attributes and environment variables are in the README beside this package.
"""

from dra_driver_cpu.driver import CpuConfig, CpuDriver, CpuSettings
from dra_driver_cpu.memory import MemoryDriver, MemorySettings

__all__ = ["CpuConfig", "CpuDriver", "CpuSettings", "MemoryDriver", "MemorySettings"]
