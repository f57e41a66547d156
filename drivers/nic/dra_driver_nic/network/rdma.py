"""RDMA devices of a node: their ports, and the device nodes by which containers use them.

Source: `/sys/class/infiniband` (Documentation/ABI/stable/sysfs-class-infiniband), `/sys/class/infiniband_verbs` and
`/sys/class/infiniband_mad` of the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_sdk import HardwareError
from dra_sdk.hardware import (
    Host,
    entries,
    exists,
    leave_out,
    numbered_paths,
    parse_pci_address,
    read_hex,
    read_if_exists,
    read_optional,
    read_text,
    real_path,
)
from dra_sdk.hardware.host import quoted, target_if_link

CONNECTION_MANAGER: Final = "/dev/infiniband/rdma_cm"
INFINIBAND_LAYER: Final = "InfiniBand"
_GUID_GROUPS: Final = 4
_VIRTUAL: Final = "/devices/virtual/"  # in the path of a device that no hardware has
_COLONS: Final = 2  # in the name of a PCI function in sysfs
_ALL_ADDRESSES: Final = 1 << 16
_VALUE: Final = re.compile(r"\d+:\s*(\S+)")  # `4: ACTIVE`
_ADDRESS: Final = re.compile(r"([0-9a-f]{4}(?::[0-9a-f]{4}){7})$")
_LAYER: Final = re.compile(r"(\w+)$")
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaPort:
    """A port of an RDMA device.

    number: number of the port, from 1.
    state: logical state, such as `ACTIVE` or `DOWN`.
    physical_state: such as `LinkUp` or `Polling`.
    link_layer: `InfiniBand` or `Ethernet`.
    gigabits: rate in gigabits per second. None if the port reports none.
    lid: local identifier of InfiniBand; 0 for none.
    interfaces: names of its network interfaces.
    pkeys: partition keys, such as 0xffff, without those that are 0.
    guid: its GUID on InfiniBand, such as `0c42:a103:0065:1235`; empty if it has none.
    """

    number: int
    state: str
    physical_state: str
    link_layer: str
    gigabits: float | None
    lid: int
    interfaces: frozenset[str]
    pkeys: tuple[int, ...]
    guid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaDevice:
    """An RDMA device.

    name: its name, such as `mlx5_0`.
    pci: PCI address; empty for a device in software.
    node_guid: its GUID, such as `0c42:a103:0065:1234`; empty if it has none, as an EFA.
    firmware: version of the firmware; empty if the kernel shows none.
    parent: network interface on which a device in software stands; empty for none.
    ports: its ports.
    nodes: device nodes, such as `/dev/infiniband/uverbs0`.
    """

    name: str
    pci: str
    node_guid: str
    firmware: str
    parent: str
    ports: tuple[RdmaPort, ...]
    nodes: tuple[str, ...]

    @property
    def interfaces(self) -> frozenset[str]:
        """The names of the network interfaces that belong to it, as far as the kernel shows them."""
        named = frozenset().union(*(port.interfaces for port in self.ports)) if self.ports else frozenset()
        return named | ({self.parent} - {""})


def read_rdma_devices(host: Host, only: Collection[str] | None = None) -> tuple[RdmaDevice, ...]:
    """Return all RDMA devices, by name. One that disappears during the call is left out.

    only: addresses of virtual functions; the devices of other virtual functions are left out. None for all.
    """
    directory = host.sys / "class/infiniband"
    nodes: dict[str, list[str]] = {}
    for device, node in _nodes(host):
        nodes.setdefault(device, []).append(node)
    devices = []
    for path in (directory / name for name in entries(directory)):
        try:
            if only is not None and exists(path / "device/physfn") and pci_address_of(path / "device") not in only:
                continue
            devices.append(_read(path, tuple(sorted(nodes.get(path.name, ())))))
        except HardwareError as error:
            if read_optional(exists, path) is not False:
                leave_out(f"RDMA device {path.name}", error)
    return tuple(devices)


def pci_address_of(path: Path) -> str:
    """Return the address of the PCI function of a device of sysfs, its own or that above others; empty for none.

    A virtio interface, for instance, is below its `virtio0`, which is below the PCI function. The target of a link
    usually says all; only if it does not, the path is resolved. Raises HardwareError if the kernel refuses that.
    """
    target = target_if_link(path)
    if target is not None and _VIRTUAL in target:
        return ""
    if address := _address_in(target or ""):
        return address
    path_of_device = read_if_exists(real_path, path)
    if target is not None and path_of_device is None:
        raise HardwareError(f"{path}: leads to nothing, to {quoted(target)}")
    return _address_in(str(path_of_device or ""))


def _address_in(path: str) -> str:
    for part in reversed(path.split("/")):
        if part.count(":") == _COLONS:
            try:
                return parse_pci_address(part)
            except ValueError:
                continue
    return ""


def text_or_empty(path: Path) -> str:
    """Read a file of sysfs; empty if it does not exist, if it has no value now, or if the kernel refuses to read it."""
    return read_optional(read_text, path, may_be_unset=True) or ""


def _read(path: Path, nodes: tuple[str, ...]) -> RdmaDevice:
    pci, parent = pci_address_of(path / "device"), read_optional(read_text, path / "parent") or ""
    addresses = 0 if parent else _ALL_ADDRESSES if pci else 1
    return RdmaDevice(
        name=path.name,
        pci=pci,
        node_guid=_guid(read_optional(read_text, path / "node_guid") or ""),
        firmware=read_optional(read_text, path / "fw_ver") or "",
        parent=parent,
        ports=tuple(_read_port(port, number, addresses) for number, port in _numbered(path / "ports")),
        nodes=nodes,
    )


def _read_port(path: Path, number: int, addresses: int) -> RdmaPort:
    """Read a port. Its interfaces are those of its first `addresses`: `rdma_rxe` has 1024 places, a file for each."""
    places = _numbered(path / "gid_attrs/ndevs")[:addresses] if addresses else []
    interfaces = {text_or_empty(place) for _, place in places}
    keys = {read_optional(read_hex, key) or 0 for _, key in _numbered(path / "pkeys")}
    layer = read_optional(_read_layer, path / "link_layer") or ""
    first = (read_optional(_read_address, path / "gids/0") or "") if layer == INFINIBAND_LAYER else ""
    return RdmaPort(
        number=number,
        state=_word(path / "state"),
        physical_state=_word(path / "phys_state"),
        link_layer=layer,
        gigabits=read_optional(_read_rate, path / "rate"),
        lid=read_optional(read_hex, path / "lid") or 0,
        interfaces=frozenset(interfaces - {""}),
        pkeys=tuple(sorted(keys - {0}, reverse=True)),
        guid=_guid(":".join(first.split(":")[_GUID_GROUPS:])),  # the second half of its first address
    )


def _numbered(directory: Path) -> list[tuple[int, Path]]:
    """Return what is numbered in a directory, ascending; nothing if it cannot be listed."""
    return list((read_optional(_by_number, directory) or {}).items())


def _by_number(directory: Path) -> dict[int, Path]:
    return numbered_paths(directory, "")


def _guid(text: str) -> str:
    """Return a GUID; empty if it is zero, which is none."""
    return text if text.strip("0:") else ""


def _word(path: Path) -> str:
    return read_optional(_read_word, path) or ""


def _read_word(path: Path) -> str:
    return _matched(_VALUE, path)


def _read_rate(path: Path) -> float:
    return float(_matched(_RATE, path))


def _read_layer(path: Path) -> str:
    return _matched(_LAYER, path)


def _read_address(path: Path) -> str:
    return _matched(_ADDRESS, path)


def _matched(pattern: re.Pattern[str], path: Path) -> str:
    text = read_text(path)
    match = pattern.match(text)
    if match is None:
        raise HardwareError(f"{path}: expected a value of an RDMA port, found {quoted(text)}")
    return match[1]


def _nodes(host: Host) -> Iterator[tuple[str, str]]:
    """Yield the RDMA device and the path of each device node."""
    for directory in ("infiniband_verbs", "infiniband_mad"):
        for name in entries(host.sys / "class" / directory):
            device = read_optional(read_text, host.sys / "class" / directory / name / "ibdev")
            if device:
                yield device, f"/dev/infiniband/{name}"
