"""VFIO: PCI functions for virtual machines, their drivers, IOMMU groups and device nodes.

Variant drivers, `nvgrace_gpu_vfio_pci` for instance, replace `vfio-pci` for certain devices. Source: the kernel's
Documentation/driver-api/vfio.rst, and `PCI_DRIVER_OVERRIDE_DEVICE_VFIO` of linux/pci.h for the aliases of variants.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from dra_sdk.errors import HardwareError, PermanentError, RetriableError
from dra_sdk.hardware.host import link_name, optional, read_text
from dra_sdk.hardware.node_access import NodeAccess
from dra_sdk.hardware.pci import PciDevice
from dra_sdk.hardware.pci_driver import function_path, load_module
from dra_sdk.model.edits import DeviceNode

VFIO_PCI: Final = "vfio-pci"
_MODULE: Final = "vfio_pci"
_ALIAS: Final = "alias vfio_pci:"
_WITHOUT_DMA: Final = frozenset({None, "pci-stub", "pcieport"})
"""Drivers that may share an IOMMU group with VFIO; the kernel refuses a group with any other."""


@dataclass(frozen=True, slots=True)
class VfioDevice:
    """A PCI function with a VFIO driver.

    group: its IOMMU group.
    device: its `vfioN` device for IOMMUFD; None if the kernel has none.
    """

    group: int
    device: str | None


def vfio_device(pci: PciDevice) -> VfioDevice:
    """A function that has a VFIO driver. Raises PermanentError without an IOMMU group."""
    if pci.iommu_group is None:
        raise PermanentError(f"PCI function {pci.address} is in no IOMMU group")
    names = sorted(path.name for path in (pci.path / "vfio-dev").glob("vfio*"))
    return VfioDevice(pci.iommu_group, names[0] if names else None)


def is_vfio_driver(driver: str | None) -> bool:
    """Whether this is `vfio-pci` or a variant of it."""
    return driver is not None and driver.replace("-", "_").endswith(_MODULE)


def vfio_driver(node: NodeAccess, address: str) -> str:
    """The VFIO driver for a function: a variant if the kernel has one for it, else `vfio-pci`.

    Raises HardwareError if the module of the variant has no driver.
    """
    module = _variant_module(node, address)
    if module in {None, _MODULE}:
        return VFIO_PCI
    drivers = node.host.sys / f"module/{module}/drivers"
    if not drivers.exists():
        load_module(node, str(module))
    names = sorted(path.name.removeprefix("pci:") for path in drivers.glob("pci:*"))
    if not names:
        raise HardwareError(f"kernel module {module} has no PCI driver, but is the VFIO variant for {address}")
    return names[0]


def slot(address: str) -> str:
    """The slot of a PCI function: its address without the function number."""
    return address.rpartition(".")[0]


def check_group(pci: PciDevice, functions: Iterable[PciDevice], together: frozenset[str]) -> None:
    """Check that a function can be passed through, with the other functions of its slot.

    functions: those of its IOMMU group.
    together: the PCI addresses of other functions that are passed through at the same time, with their slots.

    Raises PermanentError if it has virtual functions, or if its group has a function that another driver uses.
    """
    if pci.sriov is not None and pci.sriov.vfs:
        raise PermanentError(
            f"PCI function {pci.address} has {len(pci.sriov.vfs)} virtual functions; it cannot be passed through"
        )
    slots = {slot(each) for each in {pci.address, *together}}
    for other in functions:
        if slot(other.address) in slots:
            continue
        if other.driver not in _WITHOUT_DMA and not is_vfio_driver(other.driver):
            raise PermanentError(
                f"PCI function {pci.address} cannot be passed through alone: function {other.address} with driver "
                f"{other.driver} is in the same IOMMU group {pci.iommu_group}"
            )


def machine_nodes(node: NodeAccess, addresses: Iterable[str]) -> list[str]:
    """The device nodes by which a virtual machine uses the functions at these PCI addresses."""
    paths = [function_path(node, each) for each in addresses]
    bound = [path for path in paths if is_vfio_driver(link_name(path / "driver"))]
    groups = {name for path in bound if (name := link_name(path / "iommu_group"))}
    devices = sorted(each.name for path in bound for each in (path / "vfio-dev").glob("vfio*"))
    return [*(f"/dev/vfio/{name}" for name in sorted(groups)), *(f"/dev/vfio/devices/{name}" for name in devices)]


def device_nodes(node: NodeAccess, vfio: VfioDevice, *, iommufd: bool, api: bool) -> list[DeviceNode]:
    """The device nodes for a virtual machine.

    iommufd: prefer IOMMUFD to the IOMMU group if the kernel has it.
    api: add `/dev/iommu` or `/dev/vfio/vfio`, by which devices are opened.

    Raises RetriableError if one is missing.
    """
    if iommufd and vfio.device is not None and (node.host.dev / "iommu").exists():
        device, api_device = f"/dev/vfio/devices/{vfio.device}", "/dev/iommu"
    else:
        device, api_device = f"/dev/vfio/{vfio.group}", "/dev/vfio/vfio"
    paths = [device, *([api_device] if api else [])]
    for path in paths:
        if not node.local(path).exists():
            raise RetriableError(f"device node {path} is missing on the node")
    return [DeviceNode(path) for path in paths]


def _variant_module(node: NodeAccess, address: str) -> str | None:
    """The module whose alias fits with the fewest wildcards, as libvirt chooses; None if no alias fits."""
    modalias = (optional(read_text, function_path(node, address) / "modalias") or "").removeprefix("pci:")
    release = optional(read_text, node.host.proc / "sys/kernel/osrelease") or ""
    known = optional(read_text, node.local(f"/lib/modules/{release}/modules.alias")) or ""
    aliases = [line.removeprefix(_ALIAS).split() for line in known.splitlines() if line.startswith(_ALIAS)]
    fitting = [each for each in aliases if fnmatchcase(modalias, each[0])]
    return min(fitting, key=lambda each: each[0].count("*"))[1].replace("-", "_") if fitting else None
