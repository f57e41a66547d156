"""GPUs that can be given away whole to a virtual machine (VFIO), found in sysfs, whatever driver they have now."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dra_driver_gpu.describe.amounts import bytes_
from dra_driver_gpu.describe.names import vfio_name
from dra_sdk import AttributeValue, Device, HardwareError
from dra_sdk.hardware import Host, PciDevice, optional, pci_attributes, read_pci_devices, read_text

VENDOR: Final = 0x10DE
_DRIVER: Final = "vfio_pci"
_DISPLAYS: Final = (0x0300, 0x0302)  # VGA controllers and 3D controllers
_MEMORY_BAR: Final = 0x200  # IORESOURCE_MEM


@dataclass(frozen=True, slots=True)
class PassthroughGpu:
    """One GPU in the order of PCI addresses; `bar_bytes` is the sum of its memory windows."""

    index: int
    pci: PciDevice
    bar_bytes: int
    iommufd: bool

    @property
    def bound(self) -> bool:
        """Whether it is with a VFIO driver now, so that NVML does not see it."""
        return is_vfio(self.pci.driver)


def is_vfio(driver: str | None) -> bool:
    """Whether this is `vfio-pci`, or a kernel driver like it for certain devices, such as `nvgrace_gpu_vfio_pci`."""
    return driver is not None and driver.replace("-", "_").endswith(_DRIVER)


def read_passthrough(host: Host) -> tuple[PassthroughGpu, ...]:
    """See `passthrough_gpus`, of all PCI functions of the node.

    Raises HardwareError that names the file of sysfs which makes no sense.
    """
    return passthrough_gpus(host, read_pci_devices(host))


def passthrough_gpus(host: Host, functions: Iterable[PciDevice]) -> tuple[PassthroughGpu, ...]:
    """All NVIDIA GPUs that lie in an IOMMU group; none where the IOMMU is off. Virtual functions are left out."""
    found = [each for each in functions if _is_gpu(each)]
    iommufd = (host.dev / "iommu").exists()
    gpus = (PassthroughGpu(index, each, _bars(each), iommufd) for index, each in enumerate(found))
    return tuple(gpu for gpu in gpus if gpu.pci.iommu_group is not None)


def _is_gpu(pci: PciDevice) -> bool:
    return pci.vendor == VENDOR and pci.class_code >> 8 in _DISPLAYS and pci.physical_function is None


def device(gpu: PassthroughGpu, product: str | None) -> Device:
    """As it is published; only the NVIDIA driver knows the product's name."""
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
    return Device(vfio_name(gpu.index), attributes, {"addressableMemory": bytes_(gpu.bar_bytes)})


def _bars(pci: PciDevice) -> int:
    """Lines of `resource` are start, end and flags of each window, in hexadecimal; an absent window is all zeros."""
    total = 0
    for line in (optional(read_text, pci.path / "resource") or "").splitlines():
        try:
            start, end, flags = (int(number, 16) for number in line.split())
        except ValueError:
            raise HardwareError(f"{pci.path / 'resource'}: want three hexadecimal numbers, found {line!r}") from None
        if flags & _MEMORY_BAR and end > start:
            total += end - start + 1
    return total
