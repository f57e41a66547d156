"""DRA drivers for CPUs and memory: exclusive CPUs, by number, by NUMA node, L3 cache or core, or one by one; memory and
huge pages, by size.

Names of devices, attributes and environment variables are in the README beside this package.
"""

from dra_driver_cpu.config import CpuConfig
from dra_driver_cpu.driver import CpuDriver
from dra_driver_cpu.memory import MemoryDriver, MemorySettings
from dra_driver_cpu.settings import CpuSettings

__all__ = ["CpuConfig", "CpuDriver", "CpuSettings", "MemoryDriver", "MemorySettings"]
