"""PCI functions and root complexes of a host.

Source: `/sys/bus/pci/devices` (Documentation/ABI/testing/sysfs-bus-pci) and `/sys/devices/pci*` of the kernel.
"""

from __future__ import annotations

import errno
import glob
import logging
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from dra_sdk.errors import HardwareError
from dra_sdk.hardware.cpuset import CpuSet
from dra_sdk.hardware.host import link_target_name, numbered_paths, read_cpuset, read_hex, read_int, read_optional
from dra_sdk.model.driver import Host

log = logging.getLogger(__name__)
# Domains have four digits, except those of a VMD controller: 10000 and above.
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_DASHES = str.maketrans(":.", "--")
_REMOVED = frozenset({errno.ENOENT, errno.ENODEV, errno.ENXIO})


@dataclass(frozen=True, slots=True, kw_only=True)
class SriovPf:
    """The virtual functions of an SR-IOV physical function.

    total_vfs: number of virtual functions that the device supports.
    vfs: addresses of the enabled virtual functions in the order of their number: `vfs[3]` is VF 3.
    """

    total_vfs: int
    vfs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PciDevice:
    """One PCI function.

    address: domain, bus, device and function (extended BDF), such as `0000:3b:00.0`.
    path: directory of the function in sysfs.
    root: root complex above it, such as `pci0000:3a`.
    vendor: vendor ID, such as 0x10de.
    device: device ID.
    subsystem_vendor: subsystem vendor ID. None if sysfs has none.
    subsystem_device: subsystem ID. None if sysfs has none.
    class_code: class, subclass and programming interface in 24 bits, such as 0x030200.
    driver: bound kernel driver, such as `vfio-pci`. None: not bound.
    numa_node: number of the NUMA node. None if the platform does not report it.
    iommu_group: number of the IOMMU group. None without an IOMMU.
    sriov: virtual functions. None if the function cannot have any.
    physical_function: address of the physical function. None if this is not a virtual function.
    """

    address: str
    path: Path
    root: str
    vendor: int
    device: int
    subsystem_vendor: int | None
    subsystem_device: int | None
    class_code: int
    driver: str | None
    numa_node: int | None
    iommu_group: int | None
    sriov: SriovPf | None
    physical_function: str | None

    @property
    def base_class(self) -> int:
        """The class without subclass and interface: 0x01 storage, 0x02 network, 0x03 display, 0x12 accelerator."""
        return self.class_code >> 16


@dataclass(frozen=True, slots=True)
class PciRoot:
    """A PCI root complex.

    name: name in sysfs, such as `pci0000:3a`.
    cpus: local CPUs: those of one or more NUMA nodes. Empty if the platform does not report them.
    """

    name: str
    cpus: CpuSet


def parse_pci_address(text: str) -> str:
    """Return an address as extended BDF in lower case. `3b:00.0` gets domain 0000. ValueError for anything else."""
    address = text.lower()
    if address.count(":") == 1:
        address = f"0000:{address}"
    if not _ADDRESS.fullmatch(address):
        raise ValueError(f"{text!r} is not a PCI address such as 0000:3b:00.0")
    return address


def pci_device_name(address: str, prefix: str = "pci") -> str:
    """Return a name for the device of a PCI function: `pci-0000-3b-00-0` for `0000:3b:00.0`, a DNS label.

    A name with the address stays with its hardware; a number would mean other hardware after a card was unplugged. With
    another `prefix`, such as `vf` or `gpu`, the name says what it is. ValueError for what is no PCI address.
    """
    return f"{prefix}-{parse_pci_address(address)}".translate(_DASHES)


def read_pci_devices(
    host: Host, *, base_class: int | None = None, besides: Collection[str] = (), only: Collection[str] | None = None
) -> tuple[PciDevice, ...]:
    """Return the PCI functions of `host`, ascending by address. Empty on a machine without PCI.

    base_class: only functions of this class, such as 0x02; None for all. A server has hundreds, with many files each.
    besides: addresses of functions that are read if they are of another class.
    only: addresses of the functions that are read, as far as they exist; None for all.

    A function that disappears during the call is left out, such as a VF when their number changes: the kernel removes
    its files one after the other, and the link to it in between. HardwareError names a file with unexpected content.
    """
    directory = host.sys / "bus/pci/devices"
    if not directory.is_dir():
        return ()
    paths = directory.iterdir() if only is None else (directory / address for address in only)
    names = sorted((path.name for path in paths if path.exists()), key=lambda name: (len(name), name))
    if base_class is not None:
        names = [name for name in names if name in besides or _is_of_class(directory / name, base_class)]
    return tuple(device for name in names if (device := _read_if_there(host, directory / name)) is not None)


def _is_of_class(path: Path, base_class: int) -> bool:
    """Return whether a function has a class; also if that cannot be read: reading the whole function says why."""
    try:
        return read_hex(path / "class") >> 16 == base_class
    except HardwareError:
        return True


def _read_if_there(host: Host, path: Path) -> PciDevice | None:
    try:
        return read_pci_device(host, path.name)
    except HardwareError as error:
        removed = isinstance(error.__cause__, OSError) and error.__cause__.errno in _REMOVED
        if path.exists() and not removed:
            raise
        log.info("PCI function %s is left out, because it is being removed: %s", path.name, error)
        return None


def read_pci_device(host: Host, address: str) -> PciDevice:
    """Return the function at an address (extended BDF). HardwareError if there is none or a file is invalid."""
    path = host.sys / "bus/pci/devices" / address
    return PciDevice(
        address=address,
        path=path,
        root=_root_of(path),
        vendor=read_hex(path / "vendor"),
        device=read_hex(path / "device"),
        subsystem_vendor=read_optional(read_hex, path / "subsystem_vendor"),
        subsystem_device=read_optional(read_hex, path / "subsystem_device"),
        class_code=read_hex(path / "class"),
        driver=link_target_name(path / "driver"),
        numa_node=_read_numa_node(path),
        iommu_group=_read_iommu_group(path / "iommu_group"),
        sriov=_read_sriov(path),
        physical_function=link_target_name(path / "physfn"),
    )


def pci_address_of_node(host: Host, path: str) -> str | None:
    """Return the address of the PCI function behind a device node, such as `/dev/dri/renderD128` or `/dev/vfio/40`.

    None if sysfs shows none or several: for a node of a class without hardware, or an IOMMU group of many functions.
    """
    directory, _, name = path.rpartition("/")
    if directory == "/dev/vfio":
        functions = (host.sys / "bus/pci/devices").glob("*")
        names = {function.name for function in functions if link_target_name(function / "iommu_group") == name}
    else:
        entries = (host.sys / "class").glob(f"*/{glob.escape(name)}")
        names = {link_target_name(entry / "device") or "" for entry in entries}
    addresses = [address for address in names if _ADDRESS.fullmatch(address)]
    return addresses[0] if len(addresses) == 1 else None


def read_pci_roots(host: Host) -> tuple[PciRoot, ...]:
    """Return all root complexes of `host`, ascending by name."""
    directory = host.sys / "devices"
    names = sorted(path.name for path in directory.glob("pci*") if _ROOT.fullmatch(path.name))
    return tuple(PciRoot(name, _local_cpus(directory / name)) for name in names)


def _local_cpus(root: Path) -> CpuSet:
    bus = root.name.removeprefix("pci")
    return read_optional(read_cpuset, root / "pci_bus" / bus / "cpulistaffinity") or frozenset()


def _root_of(path: Path) -> str:
    """Return the first directory of the device's real path below `/sys/devices`, as KEP-4381 defines `pcieRoot`."""
    try:
        target = path.readlink()
    except OSError as error:
        raise HardwareError(f"{path}: there is no such PCI device") from error
    parts = target.parts
    below = parts[parts.index("devices") + 1 :] if "devices" in parts else ()
    if len(below) > 1 and _ROOT.fullmatch(below[0]) and target.name == path.name:
        return below[0]
    raise HardwareError(f"{path}: expected a link to devices/pci<domain>:<bus>/…/{path.name}, found {target}")


def _read_numa_node(path: Path) -> int | None:
    node = read_optional(read_int, path / "numa_node")
    return None if node is None or node < 0 else node


def _read_iommu_group(path: Path) -> int | None:
    name = link_target_name(path)
    if name is None:
        return None
    if not name.isdecimal():
        raise HardwareError(f"{path}: expected a link to a numbered IOMMU group, found {name!r}")
    return int(name)


def _read_sriov(path: Path) -> SriovPf | None:
    total = read_optional(read_int, path / "sriov_totalvfs")
    if not total:
        return None
    links = numbered_paths(path, "virtfn").values()
    return SriovPf(total_vfs=total, vfs=tuple(name for link in links if (name := link_target_name(link)) is not None))
