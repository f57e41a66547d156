"""GPUs for virtual machines (VFIO): found in sysfs, whichever kernel driver they have, and published as devices."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from dra_driver_gpu.describe.devices import LONGEST_STRING, GpuDevice, GpuKind, vfio_name
from dra_sdk import AttributeValue, Device, HardwareError, Quantity
from dra_sdk.hardware import (
    Host,
    PciDevice,
    exists,
    file_status,
    pci_attributes,
    read_large_text,
    read_optional,
    read_pci_devices,
    read_text,
)
from dra_sdk.hardware.host import quoted
from dra_sdk.hardware.host_paths import file_below
from dra_sdk.hardware.vfio import is_vfio_driver

_NVIDIA: Final = 0x10DE
_DISPLAY_CLASSES: Final = (0x0300, 0x0302)  # VGA controllers and 3D controllers
_PCI_IDS: Final = ("usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids", "usr/share/pci.ids")
_PCI_ID: Final = re.compile(r"\t([0-9a-f]{4})  (.+)")
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
    product: its name in the PCI ID database of the host, such as `GA100 [A100 SXM4 80GB]`; None if that has none.
    """

    index: int
    pci: PciDevice
    addressable_bytes: int
    iommufd: bool
    product: str | None = None

    @property
    def bound(self) -> bool:
        """Whether it is bound to a VFIO driver now, so that NVML does not see it."""
        return is_vfio_driver(self.pci.driver)


def read_passthrough(host: Host) -> tuple[PassthroughGpu, ...]:
    """Read the GPUs for virtual machines among all PCI functions. HardwareError if these cannot be listed."""
    return passthrough_gpus(host, read_pci_devices(host))


def passthrough_gpus(host: Host, functions: Iterable[PciDevice]) -> tuple[PassthroughGpu, ...]:
    """Return the NVIDIA GPUs among these functions that lie in an IOMMU group; none if the IOMMU is off.

    Virtual functions are left out.
    """
    gpu_functions = [function for function in functions if _is_gpu(function)]
    iommufd = read_optional(exists, host.dev / "iommu") or False
    names = (read_optional(_product_names, host.root) or {}) if gpu_functions else {}
    return tuple(
        PassthroughGpu(index, function, _addressable_bytes(function), iommufd, names.get(function.device))
        for index, function in enumerate(gpu_functions)
        if function.iommu_group is not None
    )


def passthrough_device(gpu: PassthroughGpu, product: str | None, gpu_uuid: str = "") -> Device:
    """Return the device of a GPU for virtual machines; `gpu_uuid` is the UUID that NVML reports, empty if it does not.

    Its name is that of the PCI ID database, as the existing driver publishes it. On a host without one it is `product`,
    the name that NVML reported before the GPU was bound; None if it reported none.
    """
    attributes: dict[str, AttributeValue] = {
        "type": "vfio",
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, gpu.pci.address)),
        "vendorID": f"{gpu.pci.vendor:#06x}",
        "deviceID": f"{gpu.pci.device:#06x}",
        "iommuFDEnabled": gpu.iommufd,
        **pci_attributes(gpu.pci),
    }
    if name := gpu.product or product:
        attributes["productName"] = name[:LONGEST_STRING]
    size = Quantity.of(gpu.addressable_bytes, binary=True)
    hardware = GpuDevice(kind=GpuKind.VFIO, pci_address=gpu.pci.address, uuid=gpu_uuid)
    return Device(vfio_name(gpu.index), attributes, {"addressableMemory": size}, hardware=hardware)


def _product_names(root: Path) -> Mapping[int, str]:
    """Read NVIDIA's names in the PCI ID database of the host, by device id; empty without one."""
    for name in _PCI_IDS:
        if (path := file_below(root, Path(name))) is not None:
            status = file_status(path)
            return _read_pci_ids(path, status.st_mtime_ns, status.st_size) if status else {}
    return {}


@lru_cache(maxsize=8)
def _read_pci_ids(path: Path, _changed: int, _size: int) -> Mapping[int, str]:
    """Read again only if the file has changed. Vendors begin a line, their devices follow after a tab: pci.ids(5)."""
    names: dict[int, str] = {}
    ours = False
    for line in read_large_text(path).splitlines():
        if not line.startswith(("\t", "#")):
            ours = line.startswith(f"{_NVIDIA:04x} ")
        elif ours and (match := _PCI_ID.fullmatch(line)):
            names[int(match[1], 16)] = match[2]
    return names


def _is_gpu(pci: PciDevice) -> bool:
    return pci.vendor == _NVIDIA and pci.class_code >> 8 in _DISPLAY_CLASSES and pci.physical_function is None


def _addressable_bytes(pci: PciDevice) -> int:
    """Return what the existing driver publishes, so selectors for it fit; 0 if it cannot be read.

    Each line of `resource` has start, end and flags of a window in hexadecimal; an absent window is all zeros. Sources:
    linux/ioport.h and pci_regs.h; nvpci of go-nvlib for the sum.
    """
    return read_optional(_sum_of_bars, pci.path / "resource") or 0


def _sum_of_bars(path: Path) -> int:
    total = 0
    for number, line in enumerate(read_text(path).splitlines()):
        try:
            start, end, flags = (int(part, 16) for part in line.split())
        except ValueError:
            raise HardwareError(f"{path}: must be three hexadecimal numbers, is {quoted(line)}") from None
        is_64_bit = flags & _MEMORY_WINDOW and flags & _TYPE_MASK == _TYPE_64
        if number < _BARS and is_64_bit and end > start:
            total += end - start + 1
    return 1 << (total - 1).bit_length() if total else 0
