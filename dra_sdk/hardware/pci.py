"""PCI functions and root complexes of a host.

Source: `/sys/bus/pci/devices` (Documentation/ABI/testing/sysfs-bus-pci) and `/sys/devices/pci*` of the kernel.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from dra_sdk.errors import HardwareError
from dra_sdk.hardware.cpuset import CpuSet
from dra_sdk.hardware.host import (
    entries,
    exists,
    is_link,
    link_target,
    numbered_paths,
    quoted,
    read_cpuset,
    read_hex,
    read_if_exists,
    read_int,
    read_optional,
    read_text,
)
from dra_sdk.hardware.numa import MAX_NUMA_NODE
from dra_sdk.model.driver import Host
from dra_sdk.model.omissions import leave_out, leave_out_fact

log = logging.getLogger(__name__)
# Domains have four digits, except those of a VMD controller: 10000 and above.
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_DASHES = str.maketrans(":.", "--")
_DRIVER = re.compile(r"[\w.:+-]+")
_IDENTITY = {
    "vendor": re.compile(r"^PCI_ID=([0-9A-F]{4}):", re.MULTILINE),
    "device": re.compile(r"^PCI_ID=[0-9A-F]{4}:([0-9A-F]{4})$", re.MULTILINE),
    "class": re.compile(r"^PCI_CLASS=([0-9A-F]+)$", re.MULTILINE),
}
"""The same values in the file `uevent` of a function (pci_uevent of the kernel)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SriovPf:
    """The virtual functions of an SR-IOV physical function.

    total_vfs: number of virtual functions that the device supports.
    vfs: addresses of the enabled virtual functions in the order of their number: `vfs[3]` is VF 3. Empty text for one
        whose address cannot be read.
    """

    total_vfs: int
    vfs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PciDevice:
    """One PCI function.

    address: domain, bus, device and function (extended BDF), such as `0000:3b:00.0`.
    path: directory of the function in sysfs.
    root: root complex above it, such as `pci0000:3a`, wherever it is below `/sys/devices`: in virtual machines and on
        ARM servers there are ACPI, VMBus or platform devices before it. None if there is none.
    vendor: vendor ID, such as 0x10de.
    device: device ID.
    subsystem_vendor: subsystem vendor ID. None if sysfs has none.
    subsystem_device: subsystem ID. None if sysfs has none.
    class_code: class, subclass and programming interface in 24 bits, such as 0x030200.
    driver: bound kernel driver, such as `vfio-pci`. None: not bound. Empty: it cannot be read.
    numa_node: number of the NUMA node. None if the platform does not report it.
    iommu_group: number of the IOMMU group. None without an IOMMU, or if it cannot be read.
    sriov: virtual functions. None if the function cannot have any.
    physical_function: address of the physical function. None if this is not a virtual function. Empty: it is one, and
        the address cannot be read.
    """

    address: str
    path: Path
    root: str | None
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
    host: Host,
    *,
    base_class: int | None = None,
    besides: Collection[str] = (),
    only: Collection[str] | None = None,
) -> tuple[PciDevice, ...]:
    """Return the PCI functions of `host`, ascending by address. Empty on a machine without PCI.

    base_class: only functions of this class, such as 0x02; None for all. A server has hundreds, with many files each.
    besides: addresses of functions that are read if they are of another class.
    only: addresses of the functions that are read, as far as they exist; None for all.

    A function that disappears during the call is left out, such as a VF when their number changes: the kernel removes
    its files one after the other, and the link to it in between. One that cannot be read is left out too, and named as
    `leave_out` does. HardwareError if the functions cannot be listed.
    """
    directory = host.sys / "bus/pci/devices"
    names = sorted(entries(directory), key=lambda name: (len(name), name))
    if only is not None:
        names = [name for name in names if name in only]
    if base_class is not None:
        names = [name for name in names if name in besides or _is_of_class(directory / name, base_class)]
    return tuple(device for name in names if (device := _read_if_there(host, directory / name)) is not None)


def _is_of_class(path: Path, base_class: int) -> bool:
    """Return whether a function has a class; also if that cannot be read: reading the whole function says why."""
    try:
        return _read_identity(path)["class"] >> 16 == base_class
    except HardwareError:
        return True


def _read_if_there(host: Host, path: Path) -> PciDevice | None:
    try:
        return read_pci_device(host, path.name)
    except HardwareError as error:
        if read_optional(is_link, path) is not False:
            leave_out(f"PCI function {path.name}", error)
        else:
            log.info("PCI function %s is left out, because it has been removed: %s", path.name, error)
        return None


def read_pci_device(host: Host, address: str) -> PciDevice:
    """Return the function at an address (extended BDF). HardwareError if there is none, or nothing says what it is."""
    path = host.sys / "bus/pci/devices" / address
    root, identity = _root_of(path), _read_identity(path)
    return PciDevice(
        address=address,
        path=path,
        root=root,
        vendor=identity["vendor"],
        device=identity["device"],
        subsystem_vendor=read_optional(read_hex, path / "subsystem_vendor"),
        subsystem_device=read_optional(read_hex, path / "subsystem_device"),
        class_code=identity["class"],
        driver=_linked(path / "driver", _DRIVER, "a driver"),
        numa_node=_read_numa_node(path),
        iommu_group=_read_iommu_group(path / "iommu_group"),
        sriov=_read_sriov(path),
        physical_function=_linked(path / "physfn", _ADDRESS, "a PCI function"),
    )


def _read_identity(path: Path) -> dict[str, int]:
    """Return vendor, device and class. Each has a file; `uevent` has all of them, for where one cannot be read."""
    identity: dict[str, int] = {}
    for name in ("vendor", "device", "class"):
        try:
            identity[name] = read_hex(path / name)
        except HardwareError as error:
            identity[name] = _from_uevent(path, name, error)
    return identity


def _from_uevent(path: Path, name: str, error: HardwareError) -> int:
    try:
        match = _IDENTITY[name].search(read_text(path / "uevent"))
    except HardwareError:
        raise error from error.__cause__
    if match is None:
        raise error
    leave_out_fact(str(path / name), f"{error}; uevent has it")
    return int(match[1], 16)


def _link(path: Path) -> str | None:
    """Return what a link leads to; None without it, empty if it cannot be read."""
    try:
        return link_target(path)
    except HardwareError as error:
        leave_out_fact(str(path), error)
        return ""


def _linked(path: Path, pattern: re.Pattern[str], what: str) -> str | None:
    """Return the name of what a link leads to, such as a driver; None without the link, empty if it cannot be read."""
    name = _link_name(path)
    if name and not pattern.fullmatch(name):
        leave_out_fact(str(path), f"{path}: expected a link to {what}, found {quoted(name)}")
        return ""
    return name


def _link_name(path: Path) -> str | None:
    target = _link(path)
    return Path(target).name if target else target


def pci_address_of_node(host: Host, path: str) -> str | None:
    """Return the address of the PCI function behind a device node, such as `/dev/dri/renderD128` or `/dev/vfio/40`.

    None if sysfs shows none or several: for a node of a class without hardware, or an IOMMU group of many functions.
    """
    directory, _, name = path.rpartition("/")
    if directory == "/dev/vfio":
        names = {at for at, link in _links_to(host.sys / "bus/pci/devices", "iommu_group") if link == name}
    else:
        names = {link for kind in entries(host.sys / "class") for link in _device_of(host.sys / "class" / kind, name)}
    addresses = [address for address in names if _ADDRESS.fullmatch(address)]
    return addresses[0] if len(addresses) == 1 else None


def _links_to(directory: Path, link: str) -> list[tuple[str, str | None]]:
    return [(name, _link_name(directory / name / link)) for name in entries(directory)]


def _device_of(directory: Path, name: str) -> list[str]:
    device = _link_name(directory / name / "device")
    return [device] if device else []


def read_pci_roots(host: Host) -> tuple[PciRoot, ...]:
    """Return all root complexes of `host`, ascending by name, also those below other devices, as on Hyper-V."""
    roots = {name: host.sys / "devices" / name for name in entries(host.sys / "devices") if _ROOT.fullmatch(name)}
    for address in entries(host.sys / "bus/pci/devices"):
        path = host.sys / "bus/pci/devices" / address
        parts = _parts_below_devices(_link(path) or "")
        place = next((number for number, part in enumerate(parts) if _ROOT.fullmatch(part)), None)
        if place is not None and parts[place] not in roots:
            roots[parts[place]] = host.sys.joinpath("devices", *parts[: place + 1])
    return tuple(PciRoot(name, _local_cpus(roots[name])) for name in sorted(roots))


def _local_cpus(root: Path) -> CpuSet:
    bus = root.name.removeprefix("pci")
    return read_optional(read_cpuset, root / "pci_bus" / bus / "cpulistaffinity") or frozenset()


def _root_of(path: Path) -> str | None:
    """Return the first directory of the device's real path that is a root complex, as KEP-4381 defines `pcieRoot`."""
    target = _link(path)
    if target is None and read_optional(exists, path) is False:
        raise HardwareError(f"{path}: there is no such PCI device")
    parts = _parts_below_devices(target or "")
    if target and (not parts or parts[-1] != path.name):
        leave_out_fact(str(path), f"{path}: expected a link to devices/…/{path.name}, found {quoted(target)}")
    return next((part for part in parts if _ROOT.fullmatch(part)), None)


def _parts_below_devices(target: str) -> tuple[str, ...]:
    parts = Path(target).parts
    return parts[parts.index("devices") + 1 :] if "devices" in parts else ()


def _read_numa_node(path: Path) -> int | None:
    node = read_optional(read_int, path / "numa_node")
    if node is not None and node > MAX_NUMA_NODE:
        leave_out_fact(
            str(path / "numa_node"), f"{path / 'numa_node'}: a NUMA node is at most {MAX_NUMA_NODE}, is {node}"
        )
        return None
    return None if node is None or node < 0 else node


def _read_iommu_group(path: Path) -> int | None:
    name = _link_name(path)
    if not name:
        return None
    if not name.isdecimal():
        leave_out_fact(str(path), f"{path}: expected a link to a numbered IOMMU group, found {quoted(name)}")
        return None
    return int(name)


def _read_sriov(path: Path) -> SriovPf | None:
    """Read the virtual functions. HardwareError if they cannot be listed: who has any is no device like others."""
    total: int | None = None
    try:
        total = read_if_exists(read_int, path / "sriov_totalvfs")
        if not total and _link(path / "virtfn0") is None:
            return None
    except HardwareError as error:
        leave_out_fact(str(path / "sriov_totalvfs"), error)
    links = numbered_paths(path, "virtfn").values()
    if not links and _link(path / "virtfn0") is not None:
        raise HardwareError(f"{path}: its virtual functions cannot be listed")
    if not total and not links:
        return None
    return SriovPf(
        total_vfs=total or len(links), vfs=tuple(_linked(link, _ADDRESS, "a PCI function") or "" for link in links)
    )
