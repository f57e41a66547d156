"""GPUs for virtual machines (VFIO): found in sysfs, whichever kernel driver they have, and published as devices."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dra_driver_gpu.describe.devices import vfio_name
from dra_sdk import AttributeValue, Device, HardwareError, Quantity
from dra_sdk.hardware import Host, PciDevice, optional, pci_attributes, read_pci_devices, read_text
from dra_sdk.hardware.vfio import is_vfio_driver

_NVIDIA: Final = 0x10DE
_DISPLAY_CLASSES: Final = (0x0300, 0x0302)  # VGA controllers and 3D controllers
_BARS: Final = 6  # the lines after them in `resource` are the expansion ROM and the BARs of virtual functions
_MEMORY_WINDOW: Final = 0x200  # IORESOURCE_MEM
_TYPE_MASK: Final = 0x06  # PCI_BASE_ADDRESS_MEM_TYPE_MASK: the lowest bits of the flags are those of the BAR
_TYPE_64: Final = 0x04


@dataclass(frozen=True, slots=True)
class PassthroughGpu:
    """A GPU that lies in an IOMMU group.

    index: its index among the node's GPUs in the order of PCI addresses.
    pci: its PCI function.
    addressable_bytes: the sum of its 64-bit memory BARs, rounded up to a power of two; 0 without one.
    iommufd: the kernel has `/dev/iommu`.
    """

    index: int
    pci: PciDevice
    addressable_bytes: int
    iommufd: bool

    @property
    def bound(self) -> bool:
        """Whether it is bound to a VFIO driver now, so that NVML does not see it."""
        return is_vfio_driver(self.pci.driver)


def read_passthrough(host: Host) -> tuple[PassthroughGpu, ...]:
    """The GPUs for virtual machines among all PCI functions of the node. Raises HardwareError for a malformed file."""
    return passthrough_gpus(host, read_pci_devices(host))


def passthrough_gpus(host: Host, functions: Iterable[PciDevice]) -> tuple[PassthroughGpu, ...]:
    """The NVIDIA GPUs among these functions that lie in an IOMMU group; none if the IOMMU is off.

    Virtual functions are left out. Raises HardwareError for a malformed file of sysfs.
    """
    found = [each for each in functions if _is_gpu(each)]
    iommufd = (host.dev / "iommu").exists()
    gpus = (PassthroughGpu(index, each, _addressable_bytes(each), iommufd) for index, each in enumerate(found))
    return tuple(gpu for gpu in gpus if gpu.pci.iommu_group is not None)


def passthrough_device(gpu: PassthroughGpu, product: str | None) -> Device:
    """The device of a GPU for virtual machines; `product` is None if no NVIDIA driver has reported the name."""
    attributes: dict[str, AttributeValue] = {
        "type": "vfio",
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, gpu.pci.address)),
        "vendorID": f"{gpu.pci.vendor:#06x}",
        "deviceID": f"{gpu.pci.device:#06x}",
        "iommuFDEnabled": gpu.iommufd,
        **pci_attributes(gpu.pci),
    }
    if product is not None:
        attributes["productName"] = product
    size = Quantity.of(gpu.addressable_bytes, binary=True)
    return Device(vfio_name(gpu.index), attributes, {"addressableMemory": size})


def _is_gpu(pci: PciDevice) -> bool:
    return pci.vendor == _NVIDIA and pci.class_code >> 8 in _DISPLAY_CLASSES and pci.physical_function is None


def _addressable_bytes(pci: PciDevice) -> int:
    """What the existing driver publishes, so selectors for it fit.

    Each line of `resource` has start, end and flags of a window in hexadecimal; an absent window is all zeros. Sources:
    linux/ioport.h and pci_regs.h; nvpci of go-nvlib for the sum.
    """
    total = 0
    for number, line in enumerate((optional(read_text, pci.path / "resource") or "").splitlines()):
        try:
            start, end, flags = (int(part, 16) for part in line.split())
        except ValueError:
            raise HardwareError(f"{pci.path / 'resource'}: must be three hexadecimal numbers, is {line!r}") from None
        is_64_bit = flags & _MEMORY_WINDOW and flags & _TYPE_MASK == _TYPE_64
        if number < _BARS and is_64_bit and end > start:
            total += end - start + 1
    return 1 << (total - 1).bit_length() if total else 0
