"""Network devices as the scheduler sees them: names, attributes, and what is kept of a device while a pod has it.

Attributes without a domain belong to `dra.net`, and have the names and values that dranet publishes; a virtual function
has those of the SR-IOV network driver as well, by which users' CEL expressions select.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dra_driver_nic.describe.nics import NETWORK_CLASS, Nic
from dra_driver_nic.describe.selection import kept, shared
from dra_driver_nic.network.links import Link, NetworkSnapshot
from dra_driver_nic.network.rdma import INFINIBAND_LAYER
from dra_driver_nic.settings import NicSettings
from dra_sdk import AllocatedDevice, Capacity, CounterConsumption, CounterSet, Device, HeldDevice, ResourcePool
from dra_sdk.hardware import PciDevice, pci_attributes, read_optional, real_path
from dra_sdk.hardware.node_access import NodeAccess
from dra_sdk.hardware.records import Records
from dra_sdk.hardware.sharing import Sharing

DRIVER_NAME: Final = "dra.net"
SRIOV: Final = "sriovnetwork.k8snetworkplumbingwg.io"
OF_SHARE: Final = "."
"""What is between the names of a device and a share in the name of a record; no device has it in its name."""
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DASHES: Final = str.maketrans(":.", "--")
_LONGEST: Final = 64  # bytes of an attribute
_NAME_LONGEST: Final = 63
_MOST: Final = 32  # attributes and capacities of a device
_BRIDGES_OF_A_SWITCH: Final = 3  # above a function: its root port, the switch's upstream and its downstream port
BANDWIDTH: Final = "bandwidth"
"""The capacity of a device in bits per second."""
_SHARED: Final = Sharing("unlimited", capacity=BANDWIDTH, step="1M")  # by default a claim takes no part of it
COUNTER: Final = "vfs"
"""The counter of a physical function: its virtual functions."""
_FIRST_TO_GO: Final = ("type", "alias", "ipv6", "ipv4", "virtual", "rdmaNodeGuid", "rdmaPKeys")
"""What a device with too many attributes goes without: a virtual function has these seldom, or always the same."""

Attributes = dict[str, str | int | bool]


@dataclass
class NicRecord:
    """What is kept of a device while a claim has it; see "State on disk" in the driver's README.

    claim: UID of the claim.
    attributes: the attributes that the device had when the claim got it; it keeps them while a pod has it.
    pod: UID of the pod that has the interface; empty before and after that.
    pod_name: namespace and name of that pod.
    namespace: path of that pod's network namespace.
    namespace_id: what no other namespace has, so that another one at this path is known; empty if that is not known.
    tag: the alternative name that the interface has there.
    attached: whether the device is there, configured; False while it moves, also after a crash.
    lease: its lease by DHCP; empty for none.
    cni: for whom plugins of CNI were called, with their result; empty for none.
    """

    claim: str = ""
    attributes: Attributes = field(default_factory=dict)
    pod: str = ""
    pod_name: str = ""
    namespace: str = ""
    namespace_id: str = ""
    tag: str = ""
    attached: bool = False
    lease: dict[str, Any] = field(default_factory=dict)
    cni: dict[str, Any] = field(default_factory=dict)


def record_name(device: AllocatedDevice[Any] | HeldDevice) -> str:
    """Return the name under which the record of a claim's device is kept: each share of a shared one has its own."""
    return device.name if device.share_id is None else f"{device.name}{OF_SHARE}{device.share_id}"


def nic_records(node: NodeAccess, directory: str) -> Records[NicRecord]:
    """Return the records of the devices that claims have."""
    return Records(node.local(directory) / "devices", NicRecord, node.boot_id, node.clock)


def device_name(nic: Nic) -> str:
    """Return the name of a device: its PCI address, port and part, else the name of its interface.

    It depends on nothing but the device: neither on what else there is, nor on the order of interfaces. A name that is
    no DNS label is written in base32, as dranet does it.
    """
    if nic.pci is not None:
        return "-".join([function_name(nic.pci.address), *(str(part) for part in (nic.port, nic.part) if part)])
    name = nic.link.name if nic.link is not None else ""
    if _LABEL.fullmatch(name) and len(name) <= _NAME_LONGEST:
        return name
    return f"net-{base64.b32encode(name.encode()).decode().rstrip('=').lower()}"


def function_name(address: str) -> str:
    """Return the name of the device at a PCI address; of a function with several ports that of the first."""
    return f"pci-{address.translate(_DASHES)}"


def published(nics: Iterable[Nic], snapshot: NetworkSnapshot, settings: NicSettings) -> dict[str, Nic]:
    """Return the devices that claims may have, by name; none of several that the kernel gives nothing of their own."""
    nics = shared(tuple(nics), snapshot, settings)
    reasons = kept(nics, snapshot, settings)
    by_name: dict[str, list[Nic]] = {}
    for nic in nics:
        if nic.link is None or nic.link.index not in reasons:
            by_name.setdefault(device_name(nic), []).append(nic)
    return {name: same[0] for name, same in by_name.items() if len(same) == 1}


def with_held_names(nics: Mapping[str, Nic], read: Callable[[str], NicRecord]) -> dict[str, Nic]:
    """Return devices under the names that they had when claims got them, until these claims are gone.

    Releases before 0.2 called every part of a port like the port. Until such a name is free, the port is left out.

    read: returns the record of a device.
    """
    named = {}
    for name, nic in nics.items():
        earlier = device_name(replace(nic, part=""))
        if nic.part and _interface(read(earlier).attributes) == _interface(attributes(nic)):
            named[earlier] = nic
        elif nic.part or nic.link is None or not _is_of_another(read(name), nic.link):
            named.setdefault(name, nic)
    return named


def _interface(values: Mapping[str, object]) -> tuple[object, object]:
    return values.get("pciAddress"), values.get("ifName")


def _is_of_another(record: NicRecord, link: Link) -> bool:
    """Return whether the device of a record has another interface: with another name, and another MAC address."""
    values = record.attributes
    return "ifName" in values and values["ifName"] != link.name and values.get("mac") != link.mac


def make_pool(
    name: str, nics: Mapping[str, Nic], records: Mapping[str, NicRecord], functions: Iterable[PciDevice] = ()
) -> ResourcePool:
    """Return the pool of a node: every device, also one whose interface is in a pod.

    A device that a claim has keeps its attributes. Devices that several claims share, and physical functions that have
    virtual ones, come last: the scheduler takes the first that fits.

    functions: the PCI functions of the node, if a physical function and its virtual functions exclude each other: both
        are devices, and both consume the counter `vfs` of the physical function.
    """
    vfs = {pci.address: pci.sriov.vfs for pci in functions if pci.base_class == NETWORK_CLASS and pci.sriov}
    counters = _FunctionCounters({pf: addresses for pf, addresses in vfs.items() if addresses})
    devices = [_device(key, nics.get(key), records.get(key), counters) for key in sorted({*nics, *records})]
    devices.sort(key=_order)
    virtual = [device.name for device in devices if device.attributes.get("isSriovVf")]
    return ResourcePool(name, devices, counters.sets(), without_counters=virtual)


def _order(device: Device) -> tuple[bool, bool, str]:
    return device.allow_multiple_allocations, bool(device.attributes.get("sriovVfs")), device.name


class _FunctionCounters:
    """The counters of physical functions: a claimed one takes all, a claimed virtual function takes one."""

    def __init__(self, vfs: Mapping[str, Collection[str]]) -> None:
        self._vfs = vfs
        self._pfs = {vf: pf for pf, addresses in vfs.items() for vf in addresses}

    def sets(self) -> list[CounterSet]:
        """Return the counter sets of the pool."""
        return [CounterSet(function_name(pf), {COUNTER: len(addresses)}) for pf, addresses in self._vfs.items()]

    def taken_by(self, address: str) -> list[CounterConsumption]:
        """Return what the device of a PCI function takes."""
        if address in self._vfs:
            return [CounterConsumption(function_name(address), {COUNTER: len(self._vfs[address])})]
        pf = self._pfs.get(address)
        return [CounterConsumption(function_name(pf), {COUNTER: 1})] if pf is not None else []


def _device(name: str, nic: Nic | None, record: NicRecord | None, counters: _FunctionCounters) -> Device:
    values = record.attributes if record is not None else attributes(nic) if nic is not None else {}
    address = values.get("pciAddress")
    is_shared = nic is not None and nic.shared
    device = Device(
        name,
        attributes=values,
        capacity=_capacity(values.get("speed")),
        consumes=[] if is_shared else counters.taken_by(str(address)),
    )
    return _SHARED.apply(device) if is_shared else device


def _capacity(speed: object) -> dict[str, Capacity]:
    """Return the bandwidth, in bits per second; nothing if the speed is not known."""
    return {BANDWIDTH: Capacity(f"{speed}M")} if isinstance(speed, int) and speed > 0 else {}


def attributes(nic: Nic) -> Attributes:
    """Return the attributes of a device, without unknown ones, and if there are too many, without `_FIRST_TO_GO`."""
    everything: dict[str, Any] = {**_link_attributes(nic), **_pci_attributes(nic), **_rdma_attributes(nic)}
    everything["isSriovVf"] = nic.pf is not None
    if nic.pf is not None:
        everything |= _sriov_attributes(nic)
    if nic.shared:
        everything["shared"] = True
    known = {name: _value(value) for name, value in everything.items() if value not in {None, ""}}
    most = _MOST - (1 if "speed" in known else 0)
    for name in _FIRST_TO_GO:
        if len(known) > most:
            known.pop(name, None)
    return known


def _value(value: Any) -> Any:
    """Cut what the hardware says to what an attribute holds."""
    return _fitting([value]) if isinstance(value, str) else value


def _link_attributes(nic: Nic) -> dict[str, Any]:
    link = nic.link
    if link is None:
        encapsulation = "infiniband" if nic.infiniband else "ether"
        return {"encapsulation": encapsulation, "virtual": False, "speed": nic.speed}
    return {
        "ifName": link.name,
        "mac": link.mac,
        "mtu": link.mtu,
        "encapsulation": "infiniband" if nic.infiniband else "ether",
        "alias": _fitting([link.alias]),
        "state": link.state,
        "carrier": link.carrier if nic.pf is None else None,
        "type": link.kind or "device",
        "ipv4": _fitting(address for address in sorted(nic.addresses) if ":" not in address),
        "ipv6": _fitting(address for address in sorted(nic.addresses) if ":" in address),
        "virtual": nic.pci is None,
        "speed": nic.speed,
    }


def _fitting(texts: Iterable[str]) -> str:
    """Join as many of the texts, from the first, as an attribute holds; a single text is cut."""
    joined = ""
    for text in texts:
        longer = f"{joined},{text}" if joined else text.encode()[:_LONGEST].decode(errors="ignore")
        if len(longer.encode()) > _LONGEST:
            break
        joined = longer
    return joined


def _pci_attributes(nic: Nic) -> dict[str, Any]:
    pci = nic.pci
    if pci is None:
        return {}
    values: dict[str, Any] = {**pci_attributes(pci), "pciAddress": pci.address, "kernelDriver": pci.driver}
    if pci.numa_node is not None:
        values["numaNode"] = pci.numa_node
    values["pcieSwitch"] = _switch_above(pci)
    if nic.pf is not None:
        return values  # its IDs are in the domain of the SR-IOV driver: a device has at most 32 attributes
    values |= {"vendor": f"{pci.vendor:04x}", "deviceID": f"{pci.device:04x}", "sriov": pci.sriov is not None}
    if pci.sriov is not None:
        values |= {"sriovVfs": len(pci.sriov.vfs), "eswitchMode": nic.eswitch_mode}
    return values


def _switch_above(pci: PciDevice) -> str:
    """Return the PCI address of the nearest PCIe switch (its upstream port) above a function; empty for none."""
    path = read_optional(real_path, pci.path)
    parts = path.parts if path is not None else ()
    bridges = parts[parts.index(pci.root) + 1 : -1] if pci.root in parts else ()
    return bridges[-2] if len(bridges) >= _BRIDGES_OF_A_SWITCH else ""


def _rdma_attributes(nic: Nic) -> dict[str, Any]:
    """Return those of the RDMA device and its port; GUID and partition keys of a port are those of InfiniBand."""
    values: dict[str, Any] = {"rdma": bool(nic.rdma), "firmware": _fitting([nic.firmware])}
    if not nic.rdma:
        return values
    device = nic.rdma[0]
    port = next((port for port in device.ports if port.number == nic.port + 1), None)
    port = port or next(iter(device.ports), None)
    values |= {"rdmaDevice": device.name, "rdmaNodeGuid": device.node_guid}
    values["firmware"] = _fitting([device.firmware or nic.firmware])
    if port is not None:
        values |= {"rdmaPortState": port.state, "rdmaLinkLayer": port.link_layer, "rdmaPortGuid": port.guid}
        if port.link_layer == INFINIBAND_LAYER:
            values["rdmaPKeys"] = _fitting(f"{key:#06x}" for key in port.pkeys)
    return values


def _sriov_attributes(nic: Nic) -> dict[str, Any]:
    """Return what the SR-IOV network driver publishes, in its domain."""
    pf, pci = nic.pf, nic.pci
    if pf is None or pci is None:
        return {}
    own = {
        "vendor": f"{pf.pci.vendor:04x}",
        "deviceID": f"{pci.device:04x}",
        "pfPciAddress": pf.pci.address,
        "PFName": pf.interface,
        "vfID": pf.number,
        "linkType": "infiniband" if nic.infiniband else "ethernet",
        "rdmaCapable": bool(nic.rdma),
        "EswitchMode": pf.eswitch_mode,
    }
    return {f"{SRIOV}/{name}": value for name, value in own.items()}
