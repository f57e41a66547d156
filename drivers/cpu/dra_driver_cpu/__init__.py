"""DRA driver for CPUs: exclusive CPUs of one NUMA node, by number.

Driver, DeviceClass and names as users of `dra.cpu` know them; see the README beside this package.
"""

from dra_driver_cpu.config import CpuConfig
from dra_driver_cpu.driver import CpuDriver

__all__ = ["CpuConfig", "CpuDriver"]
