"""A network of files: what `/sys/class/net` below a root says, for recorded nodes and tests. It cannot be changed.

sysfs has no addresses, routes or kinds of software interfaces, so these are missing; the kind of an interface without
a device is the `DEVTYPE` of its `uevent`, or its name without digits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from dra_driver_nic.network.links import (
    Address,
    EthtoolLimits,
    EthtoolSettings,
    Link,
    Neighbour,
    Network,
    NetworkError,
    NetworkSnapshot,
)
from dra_driver_nic.network.rdma import pci_address_of, text_or_empty
from dra_sdk import HardwareError
from dra_sdk.hardware import Host, entries, exists, leave_out, read_hex, read_if_exists, read_int, read_optional

T = TypeVar("T")
_IFF_UP: Final = 1


class FilesNamespace:
    """The network of a host that is a tree of files."""

    handle = -1
    identity = ""

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
        links = []
        for name in entries(self._directory):
            try:
                links.append(_link(self._directory / name))
            except HardwareError as error:
                leave_out(f"interface {name}", error)
        return sorted(links, key=lambda link: (link.index, link.name))

    def find(self, name: str) -> Link | None:
        """Return the interface with a name; sysfs has no alternative names."""
        path = self._directory / name
        return _link(path) if exists(path) else None

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

    def snapshot(self) -> NetworkSnapshot:
        """Return the interfaces."""
        return NetworkSnapshot(self.links())

    def sysctls(self, name: str) -> dict[str, str]:
        """Return nothing."""
        del name
        return {}

    def ethtool(self, name: str) -> EthtoolSettings:
        """Return nothing: sysfs has no settings of ethtool."""
        del name
        return EthtoolSettings()

    def ethtool_limits(self, name: str) -> EthtoolLimits:
        """Return nothing."""
        del name
        return EthtoolLimits()

    def _refuse(self, *arguments: Any, **_named: Any) -> NoReturn:
        """Refuse to change what the first argument is: the index or name of an interface, a VRF or a rule."""
        what = f"interface {arguments[0]}" if isinstance(arguments[0], int | str) else str(arguments[0])
        raise NetworkError(f"{what} cannot be changed: the node is a tree of files")

    change = set_master = move = remove_link = set_vf = packet_socket = _refuse
    add_altname = remove_altname = add_address = set_address = remove_address = add_route = add_neighbour = _refuse
    set_sysctl = set_features = set_channels = set_rings = _refuse
    add_macvlan = add_ipvlan = add_vrf = add_rule = remove_rule = _refuse


def _link(path: Path) -> Link:
    lines = (line.partition("=") for line in text_or_empty(path / "uevent").splitlines())
    kind = {name: value for name, _, value in lines}.get("DEVTYPE", path.name.rstrip("0123456789"))
    return Link(
        index=read_if_exists(read_int, path / "ifindex") or 0,
        name=path.name,
        kind="" if pci_address_of(path) or exists(path / "device") else kind,
        mac=text_or_empty(path / "address"),
        mtu=read_optional(read_int, path / "mtu") or 0,
        up=bool((read_optional(read_hex, path / "flags") or 0) & _IFF_UP),
        state=text_or_empty(path / "operstate"),
        carrier=text_or_empty(path / "carrier") == "1",
        arp_type=read_if_exists(read_int, path / "type") or 1,
        alias=text_or_empty(path / "ifalias"),
    )
