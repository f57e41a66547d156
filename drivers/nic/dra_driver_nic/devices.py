"""Network devices as the scheduler sees them: names, attributes, and what is kept of a device while a pod has it.

Attributes without a domain belong to `dra.net`, and have the names and values that dranet publishes; a virtual function
has those of the SR-IOV network driver as well, by which users' CEL expressions select.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dra_driver_nic.links import Snapshot
from dra_driver_nic.nics import Nic, kept
from dra_sdk import Device
from dra_sdk.hardware import pci_attributes
from dra_sdk.hardware.node_access import NodeAccess
from dra_sdk.hardware.records import Records

DRIVER_NAME: Final = "dra.net"
SRIOV: Final = "sriovnetwork.k8snetworkplumbingwg.io"
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DASHES: Final = str.maketrans(":.", "--")
_LONGEST: Final = 64  # bytes of an attribute
_NAME_LONGEST: Final = 63

Attributes = dict[str, str | int | bool]


@dataclass
class NicRecord:
    """What is kept of a device while a claim has it.

    claim: UID of the claim.
    attributes: the attributes that the device had when the claim got it; it keeps them while a pod has it.
    pod: UID of the pod that has the interface; empty before and after that.
    pod_name: namespace and name of that pod.
    namespace: path of that pod's network namespace.
    tag: the alternative name that the interface has there.
    lease: its lease by DHCP; empty for none.
    """

    claim: str = ""
    attributes: Attributes = field(default_factory=dict)
    pod: str = ""
    pod_name: str = ""
    namespace: str = ""
    tag: str = ""
    lease: dict[str, Any] = field(default_factory=dict)


def nic_records(node: NodeAccess, directory: str) -> Records[NicRecord]:
    """The records of the devices that claims have."""
    return Records(node.local(directory) / "devices", NicRecord, node.boot_id, node.clock)


def device_name(nic: Nic) -> str:
    """The name of a device: its PCI address and port, else the name of its interface.

    A name that is no DNS label is written in base32, as dranet does it.
    """
    if nic.pci is not None:
        return f"pci-{nic.pci.address.translate(_DASHES)}" + (f"-{nic.port}" if nic.port else "")
    name = nic.link.name if nic.link is not None else ""
    if _LABEL.fullmatch(name) and len(name) <= _NAME_LONGEST:
        return name
    return f"net-{base64.b32encode(name.encode()).decode().rstrip('=').lower()}"


def published(
    nics: Iterable[Nic], snapshot: Snapshot, protect: Collection[str], software: Collection[str]
) -> dict[str, Nic]:
    """The devices that claims may have, by name. Of several with one name, as the subfunctions of a card, the first."""
    found = tuple(nics)
    reasons = kept(found, snapshot, protect, software)
    names: dict[str, Nic] = {}
    for nic in found:
        if nic.link is None or nic.link.index not in reasons:
            names.setdefault(device_name(nic), nic)
    return names


def make_devices(nics: Mapping[str, Nic], records: Mapping[str, NicRecord]) -> Iterator[Device]:
    """Every device, also one whose interface is in a pod; a device that a claim has keeps its attributes."""
    for name in sorted({*nics, *records}):
        nic, record = nics.get(name), records.get(name)
        if record is not None:
            yield Device(name, record.attributes)
        elif nic is not None:
            yield Device(name, attributes(nic))


def attributes(nic: Nic) -> Attributes:
    """The attributes of a device. What is not known is left out."""
    found: dict[str, Any] = {**_link_attributes(nic), **_pci_attributes(nic), **_rdma_attributes(nic)}
    found["isSriovVf"] = nic.pf is not None
    if nic.pf is not None:
        found |= _sriov_attributes(nic)
    return {name: value for name, value in found.items() if value not in {None, ""}}


def _link_attributes(nic: Nic) -> dict[str, Any]:
    link = nic.link
    if link is None:
        return {"encapsulation": "infiniband" if nic.infiniband else "ether", "virtual": False}
    return {
        "ifName": link.name,
        "mac": link.mac,
        "mtu": link.mtu,
        "encapsulation": "infiniband" if nic.infiniband else "ether",
        "alias": _fitting([link.alias]),
        "state": link.state,
        "type": link.kind or "device",
        "ipv4": _fitting(each for each in sorted(nic.addresses) if ":" not in each),
        "ipv6": _fitting(each for each in sorted(nic.addresses) if ":" in each),
        "virtual": nic.pci is None,
        "speed": nic.speed,
    }


def _fitting(texts: Iterable[str]) -> str:
    """As many of the texts, from the first, as an attribute holds; a single text is cut."""
    found = ""
    for text in texts:
        longer = f"{found},{text}" if found else text.encode()[:_LONGEST].decode(errors="ignore")
        if len(longer.encode()) > _LONGEST:
            break
        found = longer
    return found


def _pci_attributes(nic: Nic) -> dict[str, Any]:
    pci = nic.pci
    if pci is None:
        return {}
    found: dict[str, Any] = {**pci_attributes(pci), "pciAddress": pci.address, "kernelDriver": pci.driver}
    if pci.numa_node is not None:
        found["numaNode"] = pci.numa_node
    if nic.pf is not None:
        return found  # its IDs are in the domain of the SR-IOV driver: a device has at most 32 attributes
    found |= {"vendor": f"{pci.vendor:04x}", "deviceID": f"{pci.device:04x}", "sriov": pci.sriov is not None}
    return {**found, "sriovVfs": len(pci.sriov.vfs)} if pci.sriov is not None else found


def _rdma_attributes(nic: Nic) -> dict[str, Any]:
    if not nic.rdma:
        return {"rdma": False}
    device = nic.rdma[0]
    port = next((each for each in device.ports if each.number == nic.port + 1), None)
    port = port or next(iter(device.ports), None)
    found: dict[str, Any] = {"rdma": True, "rdmaDevice": device.name, "rdmaNodeGuid": device.node_guid}
    found["firmware"] = _fitting([device.firmware])
    if port is not None:
        found |= {"rdmaPortState": port.state, "rdmaLinkLayer": port.link_layer}
    return found


def _sriov_attributes(nic: Nic) -> dict[str, Any]:
    """What the SR-IOV network driver publishes, in its domain."""
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
    }
    return {f"{SRIOV}/{name}": value for name, value in own.items()}
