"""For tests of the network driver: network namespaces, sandboxes of pods, and hardware that is made of files."""

from dra_driver_nic.testing.namespaces import PrivateNamespace, PrivateNetworks, wait_for_state
from dra_driver_nic.testing.sandboxes import EVERY_FIELD, nic_driver, run_sandbox, sandbox, stop_sandbox
from dra_driver_nic.testing.sysfs import write_interface, write_rdma_device

__all__ = [
    "EVERY_FIELD",
    "PrivateNamespace",
    "PrivateNetworks",
    "nic_driver",
    "run_sandbox",
    "sandbox",
    "stop_sandbox",
    "wait_for_state",
    "write_interface",
    "write_rdma_device",
]
