"""DRA driver for network devices: SR-IOV virtual functions, RDMA, and other interfaces, moved into a pod and back.

Names of devices, attributes and fields of the configuration are in the README beside this package.
"""

from dra_driver_nic.config import NicConfig
from dra_driver_nic.driver import NicDriver
from dra_driver_nic.settings import NicSettings

__all__ = ["NicConfig", "NicDriver", "NicSettings"]
