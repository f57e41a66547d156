"""The network devices of a node, from sysfs and a snapshot by netlink; and which of them must stay with the node.

All of this is pure: `read_nics` reads files below a root, and takes what netlink says as an argument.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from dra_driver_nic.links import INFINIBAND, LOOPBACK, Link, Snapshot
from dra_driver_nic.rdma import RdmaDevice, pci_address_of, read_rdma_devices, text_or_empty
from dra_sdk import HardwareError
from dra_sdk.hardware import Host, PciDevice, optional, read_int, read_pci_devices

NETWORK_CLASS: Final = 0x02
_STACKED: Final = frozenset({"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec", "ipoib"})
_REPRESENTOR: Final = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalFunction:
    """The physical function of a virtual function.

    pci: the function.
    number: number of the virtual function.
    interface: name of its network interface; empty if it is not in the node's namespace.
    link: index of that interface; 0 if it is not there.
    mtu: MTU of that interface, which a virtual function cannot exceed; 0 if it is not known.
    """

    pci: PciDevice
    number: int
    interface: str = ""
    link: int = 0
    mtu: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """One network device: an interface with its PCI function and RDMA devices, as far as it has them.

    link: its interface. None for a device that has RDMA alone.
    addresses: global addresses of the interface, with prefix length.
    pci: its PCI function. None for an interface in software.
    pf: the physical function. None if this is no virtual function.
    port: number of the port of a PCI function with several, from 0.
    speed: megabits per second. None if the interface reports none.
    rdma: its RDMA devices.
    """

    link: Link | None
    addresses: tuple[str, ...] = ()
    pci: PciDevice | None = None
    pf: PhysicalFunction | None = None
    port: int = 0
    speed: int | None = None
    rdma: tuple[RdmaDevice, ...] = ()

    def __str__(self) -> str:
        if self.link is not None:
            return f"interface {self.link.name}"
        return f"RDMA device {self.rdma[0].name}" if self.rdma else "a network device"

    @property
    def infiniband(self) -> bool:
        """Whether it is InfiniBand and not Ethernet."""
        if self.link is not None:
            return self.link.arp_type == INFINIBAND
        return any(port.link_layer == "InfiniBand" for each in self.rdma for port in each.ports)


def read_nics(host: Host, snapshot: Snapshot) -> tuple[Nic, ...]:
    """The network devices of a node, by PCI address and port, then those in software by name.

    The representors of virtual functions and the interface `lo` are left out.
    """
    functions = {each.address: each for each in read_pci_devices(host)}
    rdma = read_rdma_devices(host)
    found = []
    for link in snapshot.links:
        directory = host.sys / "class/net" / link.name
        if link.arp_type == LOOPBACK or _REPRESENTOR.fullmatch(text_or_empty(directory / "phys_port_name")):
            continue
        pci = functions.get(pci_address_of(directory))
        addresses = tuple(each.address for each in snapshot.addresses.get(link.index, ()) if not each.scope)
        found.append(
            Nic(
                link=link,
                addresses=addresses,
                pci=pci,
                pf=_physical_function(host, functions, snapshot, pci),
                port=optional(read_int, directory / "dev_port") or 0,
                speed=_speed(host, link),
                rdma=tuple(each for each in rdma if _belongs(each, link, pci)),
            )
        )
    taken = {each.name for nic in found for each in nic.rdma}
    for device in rdma:
        pci = functions.get(device.pci)
        if device.name not in taken and pci is not None:
            found.append(Nic(link=None, pci=pci, pf=_physical_function(host, functions, snapshot, pci), rdma=(device,)))
    return tuple(sorted(found, key=_order))


def kept(
    nics: Sequence[Nic], snapshot: Snapshot, protect: Collection[str], software: Collection[str]
) -> dict[int, str]:
    """The interfaces that no claim may have, by index, each with the reason as the end of a sentence.

    protect: patterns of names that an operator protects.
    software: kinds of software interfaces that claims may have.
    """
    uplinks = _uplinks(snapshot)
    names = {each.index: each.name for each in snapshot.links}
    reasons = {}
    for nic in nics:
        link = nic.link
        if link is None:
            continue
        above = [each.name for each in snapshot.links if each.parent == link.index and each.kind in _STACKED]
        pattern = next((each for each in protect if fnmatchcase(link.name, each)), None)
        if link.index in uplinks:
            reasons[link.index] = "is an uplink of the node: a default route goes through it"
        elif pattern is not None:
            reasons[link.index] = f"is protected by the setting protect: {pattern}"
        elif nic.pci is None and link.kind not in software:
            reasons[link.index] = f"is of kind {link.kind or 'unknown'}, which the setting software does not name"
        elif link.master:
            reasons[link.index] = f"belongs to interface {names.get(link.master, link.master)}"
        elif above:
            reasons[link.index] = f"carries interface {', '.join(sorted(above))}"
        elif nic.pci is not None and nic.pci.sriov is not None and nic.pci.sriov.vfs:
            reasons[link.index] = f"has {len(nic.pci.sriov.vfs)} virtual functions, which are devices of their own"
    return reasons


def _uplinks(snapshot: Snapshot) -> set[int]:
    """The interfaces of default routes, and all on which they stand or which belong to them."""
    links = {each.index: each for each in snapshot.links}
    found: set[int] = set()
    queue = [each for each in snapshot.default_routes if each in links]
    while queue:
        index = queue.pop()
        if index in found:
            continue
        found.add(index)
        queue += [each.index for each in snapshot.links if each.master == index]
        if links[index].kind in _STACKED and links[index].parent in links:
            queue.append(links[index].parent)
    return found


def _physical_function(
    host: Host, functions: Mapping[str, PciDevice], snapshot: Snapshot, pci: PciDevice | None
) -> PhysicalFunction | None:
    pf = functions.get(pci.physical_function or "") if pci is not None else None
    if pci is None or pf is None or pf.sriov is None or pci.address not in pf.sriov.vfs:
        return None
    number = pf.sriov.vfs.index(pci.address)
    for link in snapshot.links:
        directory = host.sys / "class/net" / link.name
        representor = _REPRESENTOR.fullmatch(text_or_empty(directory / "phys_port_name"))
        if not representor and pci_address_of(directory) == pf.address:
            return PhysicalFunction(pci=pf, number=number, interface=link.name, link=link.index, mtu=link.mtu)
    return PhysicalFunction(pci=pf, number=number)


def _belongs(device: RdmaDevice, link: Link, pci: PciDevice | None) -> bool:
    """Whether an RDMA device belongs to an interface: by name where the kernel tells it, else by PCI function."""
    if device.interfaces:
        return link.name in device.interfaces
    return pci is not None and device.pci == pci.address


def _speed(host: Host, link: Link) -> int | None:
    """The speed of an interface; sysfs refuses to read it, or says -1, where it is not known."""
    try:
        speed = optional(read_int, host.sys / "class/net" / link.name / "speed")
    except HardwareError:
        return None
    return speed if speed is not None and speed > 0 else None


def _order(nic: Nic) -> tuple[bool, int, str, int, str]:
    address = nic.pci.address if nic.pci is not None else ""
    return (not address, len(address), address, nic.port, nic.link.name if nic.link is not None else "")
