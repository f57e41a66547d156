"""DRA driver for CPUs: exclusive CPUs of one NUMA node, by number.

Names of devices, attributes and environment variables are in the README beside this package.
"""

from dra_driver_cpu.driver import CpuConfig, CpuDriver, CpuSettings

__all__ = ["CpuConfig", "CpuDriver", "CpuSettings"]
