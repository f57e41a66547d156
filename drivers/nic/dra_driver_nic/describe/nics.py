"""The network devices of a node, from sysfs and a snapshot by netlink.

This is pure: `read_nics` reads files below a root, and takes what netlink says as an argument. Which of them claims may
have is the subject of `dra_driver_nic.describe.selection`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_driver_nic.network.links import INFINIBAND, LOOPBACK, Link, NetworkSnapshot
from dra_driver_nic.network.rdma import RdmaDevice, pci_address_of, read_rdma_devices
from dra_sdk import HardwareError
from dra_sdk.hardware import (
    Host,
    PciDevice,
    entries,
    leave_out,
    link_target_name,
    numbered_paths,
    read_if_exists,
    read_int,
    read_optional,
    read_pci_devices,
    read_text,
)
from dra_sdk.hardware.host import quoted
from dra_sdk.hardware.vfio import is_vfio_driver

NETWORK_CLASS: Final = 0x02
_PARTITION: Final = "ipoib"
_UNKNOWN_SPEED: Final = (1 << 32) - 1  # SPEED_UNKNOWN, as older kernels write -1
OWN_SHARE_PREFIX: Final = "dramv"
"""How the names begin of the macvlans and ipvlans that this driver makes on the node."""
_OWN_SHARE: Final = re.compile(OWN_SHARE_PREFIX + r"[0-9a-f]{10}")
_REPRESENTOR: Final = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+|\d+")  # the second form is that of kernels before 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalFunction:
    """The physical function of a virtual function.

    pci: the function.
    number: number of the virtual function.
    interface: name of its network interface; empty if it is not in the node's namespace.
    link: index of that interface; 0 if it is not there.
    mtu: MTU of that interface, which a virtual function cannot exceed; 0 if it is not known.
    speed: megabits per second. None if the interface reports none.
    eswitch_mode: `legacy` or `switchdev`; empty if it is not known.
    """

    pci: PciDevice
    number: int
    interface: str = ""
    link: int = 0
    mtu: int = 0
    speed: int | None = None
    eswitch_mode: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """One network device: an interface with its PCI function and RDMA devices, as far as it has them.

    link: its interface. None for a device that has RDMA alone, and for a virtual function whose driver makes none.
    addresses: global addresses of the interface, with prefix length.
    pci: its PCI function. None for an interface in software.
    pf: the physical function. None if this is no virtual function.
    port: number of the port of a PCI function with several, from 0.
    part: what tells it from others of the same function and port: `sf88` for the subfunction of this number, `p8001`
        for a partition of InfiniBand, `id1` for an interface with a `dev_id`. Empty for the port itself.
    speed: megabits per second; of a virtual function that is switched off those of its physical one. None if neither
        reports any.
    rdma: its RDMA devices.
    eswitch_mode: of a card: `legacy` or `switchdev`; empty if it is not known.
    firmware: version of its firmware; empty if it is not known.
    shared: whether it stays with the node, and claims get macvlans or ipvlans on it.
    """

    link: Link | None
    addresses: tuple[str, ...] = ()
    pci: PciDevice | None = None
    pf: PhysicalFunction | None = None
    port: int = 0
    part: str = ""
    speed: int | None = None
    rdma: tuple[RdmaDevice, ...] = ()
    eswitch_mode: str = ""
    firmware: str = ""
    shared: bool = False

    def __str__(self) -> str:
        if self.link is not None:
            return f"interface {self.link.name}"
        if self.rdma:
            return f"RDMA device {self.rdma[0].name}"
        return f"function {self.pci.address}" if self.pci is not None else "a network device"

    @property
    def infiniband(self) -> bool:
        """Whether it is InfiniBand and not Ethernet."""
        if self.link is not None:
            return self.link.arp_type == INFINIBAND
        return any(port.link_layer == "InfiniBand" for device in self.rdma for port in device.ports)


def read_nics(host: Host, snapshot: NetworkSnapshot, places: Collection[str] | None = None) -> tuple[Nic, ...]:
    """Return the network devices of a node, by PCI address and port, then those in software by name.

    Left out are the representors of virtual functions, the macvlans and ipvlans of claims, and the interface `lo`. A
    virtual function without an interface is a device if its driver is VFIO, or if it has none; otherwise its interface
    is in another network namespace.

    places: PCI addresses and names of interfaces. Only the devices there are read, with the physical function of a
        virtual one, and the virtual functions of a physical one. None for all.
    """
    return tuple(sorted(_NicReader(host, snapshot, places).read(), key=_order))


def _related(host: Host, places: Collection[str]) -> set[str]:
    """Return the PCI addresses among some places, of their physical functions and of their virtual ones."""
    addresses = {place for place in places if ":" in place}  # no name of an interface has one
    for address in tuple(addresses):
        path = host.sys / "bus/pci/devices" / address
        links = [path / "physfn", *(read_optional(_virtual_functions, path) or {}).values()]
        addresses |= {name for link in links if (name := read_optional(link_target_name, link)) is not None}
    return addresses


def _virtual_functions(path: Path) -> dict[int, Path]:
    return numbered_paths(path, "virtfn")


class _NicReader:
    """Reads the devices of one node, and each file once: a card may have hundreds of virtual functions."""

    def __init__(self, host: Host, snapshot: NetworkSnapshot, places: Collection[str] | None) -> None:
        self._host, self._snapshot = host, snapshot
        related = None if places is None else _related(host, places)
        self._rdma = read_rdma_devices(host, related)
        self._rdma_by_place: dict[
            str, list[RdmaDevice]
        ] = {}  # by interface where the kernel names it, else by function
        for device in self._rdma:
            for place in device.interfaces or {device.pci}:
                self._rdma_by_place.setdefault(place, []).append(device)
        self._links: list[tuple[Link, str, int]] = []  # with the address of the function, and the number of its port
        self._placed: set[str] = set()  # interfaces of which the function is known
        self._switches: set[str] = set()  # functions with representors
        for link in snapshot.links:
            try:
                self._add(link, places, related)
            except HardwareError as error:
                leave_out(f"interface {link.name}", error)
        self._interfaces = {address: link for link, address, _ in reversed(self._links) if address}
        used = {address for _, address, _ in self._links if address}
        if related is None:
            used |= {device.pci for device in self._rdma}
            functions = read_pci_devices(host, base_class=NETWORK_CLASS, besides=used)
        else:
            functions = read_pci_devices(host, only=related | used)
        self._functions = {pci.address: pci for pci in functions}
        self._numbers = {
            address: (pf, number)
            for pf in self._functions.values()
            if pf.sriov is not None
            for number, address in enumerate(pf.sriov.vfs)
        }

    def _add(self, link: Link, places: Collection[str] | None, related: Collection[str] | None) -> None:
        """Add an interface if it can be a device. HardwareError if the kernel does not let this be read."""
        directory = self._host.sys / "class/net" / link.name
        address = pci_address_of(directory)
        if related is None or places is None or address in related or link.name in places:
            self._add_at(address, link, directory)
        if address:
            self._placed.add(link.name)

    def _add_at(self, address: str, link: Link, directory: Path) -> None:
        port_name = read_if_exists(read_text, directory / "phys_port_name", may_be_unset=True) if address else None
        if _REPRESENTOR.fullmatch(port_name or ""):
            self._switches.add(address)
        elif link.arp_type != LOOPBACK and not _OWN_SHARE.fullmatch(link.name):
            port = read_if_exists(read_int, directory / "dev_port") if address else None
            self._links.append((link, address, port or 0))

    def read(self) -> list[Nic]:
        """Return all devices, in no order."""
        nics = [
            self._with_interface(link, self._functions.get(address), port)
            for link, address, port in self._links
            if self._is_known(address, f"interface {link.name}")
        ]
        taken = {device.name for nic in nics for device in nic.rdma}
        for device in self._rdma:
            pci = self._functions.get(device.pci)
            if device.name in taken or pci is None or not self._is_known(device.pci, f"RDMA device {device.name}"):
                continue
            if self._has_no_interface(pci, device):
                nics.append(self._without_interface(pci, device))
        shown = {nic.pci.address for nic in nics if nic.pci is not None}
        for address in self._numbers.keys() - shown:
            pci = self._functions.get(address)
            if (
                pci is not None
                and pci.base_class == NETWORK_CLASS
                and (pci.driver is None or is_vfio_driver(pci.driver))
            ):
                nics.append(self._without_interface(pci))
        return nics

    def _is_known(self, address: str, device: str) -> bool:
        """Return whether enough is known of a PCI function; of a virtual one, also of its physical function."""
        pci = self._functions.get(address)
        if pci is None or pci.physical_function is None or address in self._numbers:
            return True
        leave_out(device, f"the physical function of {address} cannot be read")
        return False

    def _has_no_interface(self, pci: PciDevice, device: RdmaDevice) -> bool:
        """Return whether a function has no interface here: with one that cannot be read, the node may need it."""
        shares = pci.address in self._interfaces and not self._subfunction(f"class/infiniband/{device.name}")
        unread = sorted(set(read_optional(entries, pci.path / "net") or ()) - self._placed)
        if unread:
            leave_out(f"RDMA device {device.name}", f"interface {unread[0]} of {pci.address} cannot be read")
        elif shares:
            named = quoted(", ".join(sorted(device.interfaces)))
            leave_out(f"RDMA device {device.name}", f"it names interface {named}, which {pci.address} does not have")
        return not unread and not shares

    def _with_interface(self, link: Link, pci: PciDevice | None, port: int) -> Nic:
        pf = self._physical_function(pci)
        speed = _speed(self._host, link)
        addresses = self._snapshot.addresses.get(link.index, ())
        return Nic(
            link=link,
            addresses=tuple(address.address for address in addresses if not address.scope),
            pci=pci,
            pf=pf,
            port=port if pci else 0,
            part=self._part(link) if pci else "",
            speed=pf.speed if speed is None and pf is not None else speed,
            rdma=tuple(self._rdma_of(link, pci)),
            eswitch_mode=self._eswitch_mode(pci),
            firmware=self._snapshot.firmware.get(link.name, ""),
        )

    def _without_interface(self, pci: PciDevice, *rdma: RdmaDevice) -> Nic:
        pf = self._physical_function(pci)
        speed = None if pf is None else pf.speed
        part = next((part for device in rdma if (part := self._subfunction(f"class/infiniband/{device.name}"))), "")
        return Nic(link=None, pci=pci, pf=pf, part=part, speed=speed, rdma=rdma, eswitch_mode=self._eswitch_mode(pci))

    def _port(self, link: Link) -> int:
        return read_optional(read_int, self._host.sys / "class/net" / link.name / "dev_port") or 0

    def _part(self, link: Link) -> str:
        directory = self._host.sys / "class/net" / link.name
        if link.kind == _PARTITION and link.parent:
            return f"p{_given(directory / 'pkey').removeprefix('0x')}"
        identity = "" if self._port(link) else _given(directory / "dev_id").removeprefix("0x")
        return self._subfunction(f"class/net/{link.name}") or (f"id{identity}" if identity.strip("0") else "")

    def _subfunction(self, device: str) -> str:
        """Return `sf` with the number that was given to a subfunction; empty for a device that is none."""
        number = _given(self._host.sys / device / "device/sfnum")
        return f"sf{number}" if number else ""

    def _rdma_of(self, link: Link, pci: PciDevice | None) -> list[RdmaDevice]:
        devices = self._rdma_by_place.get(link.name, []) + (self._rdma_by_place.get(pci.address, []) if pci else [])
        return sorted(devices, key=lambda device: device.name)

    def _physical_function(self, pci: PciDevice | None) -> PhysicalFunction | None:
        if pci is None or pci.address not in self._numbers:
            return None
        pf, number = self._numbers[pci.address]
        mode = self._eswitch_mode(pf)
        link = self._interfaces.get(pf.address)
        if link is None:
            return PhysicalFunction(pci=pf, number=number, eswitch_mode=mode)
        return PhysicalFunction(
            pci=pf,
            number=number,
            interface=link.name,
            link=link.index,
            mtu=link.mtu,
            speed=_speed(self._host, link),
            eswitch_mode=mode,
        )

    def _eswitch_mode(self, pci: PciDevice | None) -> str:
        """Ask devlink; without it, a card that can have virtual functions and shows no representors is legacy."""
        if pci is None or pci.sriov is None:
            return ""
        mode = self._snapshot.eswitch_modes.get(pci.address)
        return mode or ("switchdev" if pci.address in self._switches else "legacy")


def _given(path: Path) -> str:
    """Return what a file says that makes a device what it is; empty without it. HardwareError if it is refused."""
    return read_if_exists(read_text, path, may_be_unset=True) or ""


def _speed(host: Host, link: Link) -> int | None:
    """Read the speed of an interface; sysfs refuses to read it, or says -1, where it is not known."""
    speed = read_optional(read_int, host.sys / "class/net" / link.name / "speed", may_be_unset=True) or 0
    return speed if 0 < speed < _UNKNOWN_SPEED else None


def _order(nic: Nic) -> tuple[bool, int, str, int, str, str]:
    address = nic.pci.address if nic.pci is not None else ""
    name = nic.link.name if nic.link is not None else ""
    return (not address, len(address), address, nic.port, nic.part, name)
