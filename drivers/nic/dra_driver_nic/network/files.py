"""A network of files: what `/sys/class/net` below a root says, for recorded nodes and tests. It cannot be changed.

sysfs has no addresses, routes or kinds of software interfaces, so these are missing; the kind of an interface without
a device is the `DEVTYPE` of its `uevent`, or its name without digits.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from dra_driver_nic.network.links import (
    Address,
    EthtoolLimits,
    EthtoolSettings,
    Link,
    Neighbour,
    Network,
    NetworkError,
    Route,
    Rule,
    Snapshot,
    VfSettings,
    Vrf,
)
from dra_driver_nic.network.rdma import pci_address_of, text_or_empty
from dra_sdk.hardware import Host, optional, read_int

T = TypeVar("T")
_IFF_UP: Final = 1


class FilesNamespace:
    """The network of a host that is a tree of files."""

    handle = -1

    def __init__(self, host: Host) -> None:
        self._host = host

    def run(self, work: Callable[[Network], T]) -> T:
        """Call a function with the network."""
        return work(FilesNetwork(self._host))

    def close(self) -> None:
        """Do nothing: no file is open."""


class FilesNetwork:
    """As `Network`, for reading only."""

    def __init__(self, host: Host) -> None:
        self._directory = host.sys / "class/net"

    def links(self) -> list[Link]:
        """Return all interfaces."""
        paths = self._directory.iterdir() if self._directory.is_dir() else ()
        return sorted((_link(path) for path in paths), key=lambda link: (link.index, link.name))

    def find(self, name: str) -> Link | None:
        """Return the interface with a name; sysfs has no alternative names."""
        path = self._directory / name
        return _link(path) if path.exists() else None

    def index(self, name: str) -> int:
        """Return the index of the interface with a name."""
        link = self.find(name)
        return 0 if link is None else link.index

    def addresses(self) -> dict[int, list[Address]]:
        """Return nothing: sysfs has no addresses."""
        return {}

    def neighbours(self, link: int) -> list[Neighbour]:
        """Return nothing: sysfs has no neighbours."""
        del link
        return []

    def snapshot(self) -> Snapshot:
        """Return the interfaces."""
        return Snapshot(self.links())

    def sysctls(self, name: str) -> dict[str, str]:
        """Return nothing."""
        del name
        return {}

    def change(self, link: int, *, name: str = "", mtu: int = 0, mac: str = "", up: bool | None = None) -> None:
        """Refuse."""
        del name, mtu, mac, up
        raise _refusal(link)

    def set_master(self, link: int, master: int) -> None:
        """Refuse."""
        del master
        raise _refusal(link)

    def add_vrf(self, vrf: Vrf) -> None:
        """Refuse."""
        raise NetworkError(f"VRF {vrf.name} cannot be added to a tree of files")

    def add_macvlan(self, name: str, parent: int, mac: str) -> None:
        """Refuse."""
        del name, mac
        raise _refusal(parent)

    def add_ipvlan(self, name: str, parent: int) -> None:
        """Refuse."""
        del name
        raise _refusal(parent)

    def remove_link(self, link: int) -> None:
        """Refuse."""
        raise _refusal(link)

    def move(self, link: int, namespace: int, index: int = 0, name: str = "") -> None:
        """Refuse."""
        del namespace, index, name
        raise _refusal(link)

    def add_altname(self, link: int, name: str) -> None:
        """Refuse."""
        del name
        raise _refusal(link)

    def remove_altname(self, link: int, name: str) -> None:
        """Refuse."""
        del name
        raise _refusal(link)

    def add_address(self, link: int, address: Address) -> None:
        """Refuse."""
        del address
        raise _refusal(link)

    def set_address(self, link: int, address: Address) -> None:
        """Refuse."""
        del address
        raise _refusal(link)

    def remove_address(self, link: int, address: Address) -> None:
        """Refuse."""
        del address
        raise _refusal(link)

    def add_route(self, link: int, route: Route) -> None:
        """Refuse."""
        del route
        raise _refusal(link)

    def add_rule(self, rule: Rule) -> None:
        """Refuse."""
        raise NetworkError(f"rule {rule.priority} cannot be added to a tree of files")

    def remove_rule(self, rule: Rule) -> None:
        """Refuse."""
        raise NetworkError(f"rule {rule.priority} cannot be removed from a tree of files")

    def add_neighbour(self, link: int, neighbour: Neighbour) -> None:
        """Refuse."""
        del neighbour
        raise _refusal(link)

    def packet_socket(self, name: str) -> socket.socket:
        """Refuse."""
        raise NetworkError(f"interface {name} sends no packets: the node is a tree of files")

    def set_vf(self, link: int, settings: VfSettings) -> None:
        """Refuse."""
        del settings
        raise _refusal(link)

    def set_sysctl(self, name: str, key: str, value: str) -> None:
        """Refuse."""
        raise NetworkError(f"sysctl {key} of interface {name} cannot be {value}: the node is a tree of files")

    def ethtool(self, name: str) -> EthtoolSettings:
        """Return nothing: sysfs has no settings of ethtool."""
        del name
        return EthtoolSettings()

    def ethtool_limits(self, name: str) -> EthtoolLimits:
        """Return nothing."""
        del name
        return EthtoolLimits()

    def set_features(self, name: str, features: Mapping[str, bool]) -> list[str]:
        """Refuse."""
        raise NetworkError(f"features {', '.join(features)} of interface {name} cannot be set in a tree of files")

    def set_channels(self, name: str, channels: Mapping[str, int]) -> None:
        """Refuse."""
        raise NetworkError(f"channels {', '.join(channels)} of interface {name} cannot be set in a tree of files")

    def set_rings(self, name: str, rings: Mapping[str, int]) -> None:
        """Refuse."""
        raise NetworkError(f"rings {', '.join(rings)} of interface {name} cannot be set in a tree of files")


def _refusal(link: int) -> NetworkError:
    return NetworkError(f"interface {link} cannot be changed: the node is a tree of files")


def _link(path: Path) -> Link:
    lines = (line.partition("=") for line in text_or_empty(path / "uevent").splitlines())
    kind = {name: value for name, _, value in lines}.get("DEVTYPE", path.name.rstrip("0123456789"))
    return Link(
        index=optional(read_int, path / "ifindex") or 0,
        name=path.name,
        kind="" if pci_address_of(path) or (path / "device").exists() else kind,
        mac=text_or_empty(path / "address"),
        mtu=optional(read_int, path / "mtu") or 0,
        up=bool(int(text_or_empty(path / "flags") or "0", 16) & _IFF_UP),
        state=text_or_empty(path / "operstate") or "unknown",
        carrier=text_or_empty(path / "carrier") == "1",
        arp_type=optional(read_int, path / "type") or 1,
        alias=text_or_empty(path / "ifalias"),
    )
