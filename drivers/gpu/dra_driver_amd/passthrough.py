"""GPUs and virtual functions for virtual machines (VFIO), found in sysfs, whichever kernel driver they have.

| function | published |
|---|---|
| GPU with `amdgpu` | as GPU or partitions, and as VFIO device; they exclude each other |
| GPU with a VFIO driver | as VFIO device; an operator or a claim bound it |
| GPU with virtual functions, or with the driver that makes them (`gim`) | not at all: it serves its virtual functions |
| virtual function with a VFIO driver or none | as VFIO device |
| virtual function with `amdgpu`, as in a guest | as GPU |

How many virtual functions a GPU has is the operator's business: MxGPU (`gim`) makes them when it is loaded.
Source: the README of MxGPU-Virtualization; Documentation/ABI/testing/sysfs-bus-pci for `sriov_numvfs` and `physfn`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dra_driver_amd.gpus import KERNEL_DRIVER
from dra_sdk.hardware import Host, PciDevice, exists, read_optional, read_pci_devices
from dra_sdk.hardware.vfio import is_vfio_driver

_AMD: Final = 0x1002
_CLASSES: Final = frozenset({0x03, 0x12})  # display controllers; processing accelerators, such as MI300X


@dataclass(frozen=True, slots=True)
class PassthroughFunction:
    """A GPU or a virtual function that lies in an IOMMU group and can be passed through.

    pci: the PCI function.
    iommufd: the kernel has `/dev/iommu`.
    """

    pci: PciDevice
    iommufd: bool

    @property
    def name(self) -> str:
        """The device's name, such as `gpu-vfio-0000-c1-00-0`: an index would shift with the number of functions."""
        return f"gpu-vfio-{self.pci.address.translate(_DASHES)}"

    @property
    def virtual(self) -> bool:
        """Whether it is a virtual function."""
        return self.pci.physical_function is not None

    @property
    def bound(self) -> bool:
        """Whether it is bound to a VFIO driver now."""
        return is_vfio_driver(self.pci.driver)


_DASHES: Final = str.maketrans(":.", "--")


def counter_set_name(address: str) -> str:
    """Return the counters that the devices of one GPU share."""
    return f"gpu-{address.translate(_DASHES)}-counter-set"


def read_passthrough(host: Host) -> tuple[PassthroughFunction, ...]:
    """Return all functions of the node that can be passed through. Raises HardwareError for a malformed file."""
    return passthrough_functions(host, read_pci_devices(host))


def passthrough_functions(host: Host, functions: Iterable[PciDevice]) -> tuple[PassthroughFunction, ...]:
    """Return those of these functions that can be passed through; none if the IOMMU is off."""
    iommufd = read_optional(exists, host.dev / "iommu") or False
    return tuple(PassthroughFunction(function, iommufd) for function in functions if _fits(function))


def _fits(pci: PciDevice) -> bool:
    if pci.vendor != _AMD or pci.base_class not in _CLASSES or pci.iommu_group is None:
        return False
    if pci.sriov is not None and pci.sriov.vfs:
        return False
    return is_vfio_driver(pci.driver) or pci.driver == (None if pci.physical_function else KERNEL_DRIVER)
