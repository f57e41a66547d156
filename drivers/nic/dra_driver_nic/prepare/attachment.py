"""What a claim does with an interface: how it is on the node, and how the pod gets it. A claim's data keeps it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from pydantic import TypeAdapter

from dra_driver_nic.network.links import (
    Address,
    EthtoolSettings,
    Link,
    Neighbour,
    Network,
    NetworkSnapshot,
    Route,
    RoutingRule,
    Vrf,
)

TAG: Final = "dra-"
"""How alternative names of the driver begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """An interface as it is on the node.

    index: its index.
    name: its name.
    mac: its hardware address.
    mtu: its MTU in bytes.
    up: whether it is switched on.
    addresses: its addresses, but those that the kernel makes by itself.
    routes: the routes through it, but those of the kernel.
    neighbours: its permanent neighbours.
    sysctls: its sysctls.
    ethtool: its features, channels and rings.
    altnames: its alternative names.
    """

    index: int
    name: str
    mac: str
    mtu: int
    up: bool
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    ethtool: EthtoolSettings = field(default_factory=EthtoolSettings)
    altnames: tuple[str, ...] = ()

    @classmethod
    def read(cls, network: Network, link: Link, snapshot: NetworkSnapshot) -> Self:
        """Return the state of an interface of a snapshot; read the rest from the network. Raises NetworkError."""
        return cls(
            index=link.index,
            name=link.name,
            mac=link.mac,
            mtu=link.mtu,
            up=link.up,
            addresses=tuple(snapshot.addresses.get(link.index, ())),
            routes=tuple(snapshot.routes.get(link.index, ())),
            neighbours=tuple(network.neighbours(link.index)),
            sysctls=network.sysctls(link.name),
            ethtool=network.ethtool(link.name),
            altnames=tuple(name for name in link.altnames if not name.startswith(TAG)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """An interface as the pod gets it.

    name: its name.
    mac: its hardware address; empty for that of the node.
    mtu: its MTU in bytes; 0 for that of the node.
    addresses: its addresses.
    routes: the routes through it.
    rules: rules of policy routing.
    neighbours: its permanent neighbours.
    sysctls: sysctls that are set.
    ethtool: features, channels and rings that are set.
    vrf: the VRF to which it belongs. None for none.
    """

    name: str
    mac: str = ""
    mtu: int = 0
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    rules: tuple[RoutingRule, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    ethtool: EthtoolSettings = field(default_factory=EthtoolSettings)
    vrf: Vrf | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """An interface that a claim has: as it was on the node, and as it is in the pod.

    device: the name of the device.
    tag: its alternative name while it is away from its place, unique on the node.
    pci: its PCI address; empty for an interface in software, which ends with the namespace that it is in.
    host: the state on the node.
    pod: the state in the pod.
    parent: the shared interface on which it is made; empty for the interface of the device itself.
    kind: `macvlan` or `ipvlan`, for an interface on a shared one.
    cni: the CNI network whose plugins are called for it, as the node's file has it; empty for none.
    """

    device: str
    tag: str
    pci: str = ""
    parent: str = ""
    kind: str = ""
    host: HostState
    pod: PodState
    cni: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Attachment:
        """Return the attachment that a claim's data has."""
        return _ADAPTER.validate_python(entry)

    @property
    def entry(self) -> dict[str, Any]:
        """What a claim's data keeps, as JSON."""
        return dict(_ADAPTER.dump_python(self, mode="json"))

    @property
    def temporary_name(self) -> str:
        """The name between two namespaces; no other interface has it."""
        return f"dra{hashlib.sha256(self.tag.encode()).hexdigest()[:12]}"

    def __str__(self) -> str:
        return f"device {self.device} (interface {self.parent or self.host.name})"


_ADAPTER: Final = TypeAdapter(Attachment)


def in_order(routes: Iterable[Route]) -> list[Route]:
    """Return routes without a gateway first, because a gateway must be reachable when a route names it."""
    return sorted(routes, key=lambda route: bool(route.gateway))
