"""Network interfaces of one network namespace, and what the driver may read and change there.

`Network` is a narrow protocol: `kernel` implements it by netlink, tests may imitate it. Addresses, routes and
neighbours are text and numbers, so that a claim's state file can hold them. Source: rtnetlink(7).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from dra_sdk import RetriableError

T = TypeVar("T")
MAIN_TABLE: Final = 254
LOCAL_TABLE: Final = 255
UNIVERSE: Final = 0
LINK_SCOPE: Final = 253
KERNEL: Final = 2  # the protocol of routes that the kernel adds with an address
PERMANENT: Final = 0x80  # NUD_PERMANENT, the state of a neighbour that somebody has added
INFINIBAND: Final = 32  # ARPHRD_INFINIBAND
LOOPBACK: Final = 772  # ARPHRD_LOOPBACK


class NetworkError(RetriableError):
    """The kernel has refused a change of the network.

    errno: the error number of the kernel; 0 if there is none.
    """

    def __init__(self, message: str, errno: int = 0) -> None:
        super().__init__(message)
        self.errno = errno


@dataclass(frozen=True, slots=True, kw_only=True)
class VfSettings:
    """What a physical function prescribes for one of its virtual functions (IFLA_VF_*). None: not known, or unchanged.

    number: number of the virtual function.
    mac: MAC address.
    vlan: VLAN id; 0 for none.
    qos: VLAN priority.
    spoofchk: whether frames with a foreign source address are dropped.
    trust: whether the function may change its MAC address and be promiscuous.
    min_tx_rate: guaranteed megabits per second; 0 for none.
    max_tx_rate: limit in megabits per second; 0 for none.
    link_state: 0 follows the physical port, 1 is always up, 2 is always down.
    """

    number: int
    mac: str | None = None
    vlan: int | None = None
    qos: int | None = None
    spoofchk: bool | None = None
    trust: bool | None = None
    min_tx_rate: int | None = None
    max_tx_rate: int | None = None
    link_state: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One network interface.

    index: its number in the namespace.
    name: its name.
    kind: kind of a software interface, such as `veth`; empty for hardware.
    mac: hardware address.
    mtu: maximum transmission unit in bytes.
    min_mtu: smallest MTU that it takes.
    max_mtu: largest MTU that it takes; 0 if the kernel has no limit.
    up: whether it is switched on.
    state: operational state, such as `up` or `down`.
    carrier: whether it has a carrier; False while it is switched off.
    arp_type: type of hardware: 1 Ethernet, 32 InfiniBand, 772 loopback.
    alias: text that an administrator gave it.
    altnames: alternative names.
    parent: index of the interface on which it stands, in this namespace; 0 for none.
    master: index of the bridge, bond or VRF that it belongs to; 0 for none.
    vfs: settings of its virtual functions.
    table: routing table of a VRF; 0 for all other kinds.
    """

    index: int
    name: str
    kind: str = ""
    mac: str = ""
    mtu: int = 1500
    min_mtu: int = 0
    max_mtu: int = 0
    up: bool = False
    state: str = "down"
    carrier: bool = False
    arp_type: int = 1
    alias: str = ""
    altnames: tuple[str, ...] = ()
    parent: int = 0
    master: int = 0
    vfs: tuple[VfSettings, ...] = ()
    table: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address of an interface.

    address: address with prefix length, such as `10.0.0.5/24`.
    peer: address of the other side of a point-to-point link; empty for none.
    broadcast: broadcast address; empty for none.
    label: label of an IPv4 address; empty for none.
    scope: scope, 0 for global.
    flags: IFA_F_* of linux/if_addr.h, without those that the kernel sets by itself.
    metric: priority of its route; 0 for the kernel's.
    valid: seconds for which it is valid; None without limit.
    preferred: seconds for which it is preferred; None without limit.
    """

    address: str
    peer: str = ""
    broadcast: str = ""
    label: str = ""
    scope: int = UNIVERSE
    flags: int = 0
    metric: int = 0
    valid: int | None = None
    preferred: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route through one interface.

    destination: network, such as `10.1.0.0/16`; `0.0.0.0/0` or `::/0` for a default route.
    gateway: next hop; empty for none.
    source: preferred source address; empty for none.
    scope: 0 for global, 253 for link.
    table: number of the routing table.
    metric: priority; 0 for the kernel's.
    protocol: who added it (RTPROT_*): 2 the kernel, 4 an administrator.
    type: RTN_*: 1 unicast.
    tos: type of service.
    flags: RTNH_F_*, such as 4 for onlink.
    mtu: MTU of the route; 0 for none.
    """

    destination: str
    gateway: str = ""
    source: str = ""
    scope: int = UNIVERSE
    table: int = MAIN_TABLE
    metric: int = 0
    protocol: int = 4
    type: int = 1
    tos: int = 0
    flags: int = 0
    mtu: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRule:
    """A rule of policy routing.

    priority: number by which rules are ordered.
    source: network of the sender; empty for any.
    destination: network of the receiver; empty for any.
    table: routing table.
    """

    priority: int
    source: str = ""
    destination: str = ""
    table: int = MAIN_TABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A permanent entry of the neighbour table.

    address: IP address.
    mac: hardware address.
    """

    address: str
    mac: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Vrf:
    """A VRF of a pod: interfaces in it have a routing table of their own.

    name: name of its interface.
    table: number of the routing table.
    """

    name: str
    table: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EthtoolSettings:
    """Settings of an interface that `ethtool` shows.

    features: features that can be switched, each with whether it is requested (`ethtool -k`).
    channels: numbers of queues, by `rx`, `tx`, `other` and `combined` (`ethtool -l`).
    rings: numbers of entries of rings, by `rx`, `rxMini`, `rxJumbo` and `tx` (`ethtool -g`).
    """

    features: Mapping[str, bool] = field(default_factory=dict)
    channels: Mapping[str, int] = field(default_factory=dict)
    rings: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EthtoolLimits:
    """What these settings may be.

    fixed: features that the interface knows, but that cannot be switched.
    channels: the largest numbers of queues; what is missing cannot be set.
    rings: the largest numbers of entries of rings; what is missing cannot be set.
    """

    fixed: tuple[str, ...] = ()
    channels: Mapping[str, int] = field(default_factory=dict)
    rings: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NetworkSnapshot:
    """What discovery and prepare ask the kernel about a namespace, all at once.

    links: its interfaces.
    addresses: the addresses of each interface, by index, except those that the kernel makes by itself.
    default_routes: the interfaces through which default routes of the main table go, by index.
    firmware: the firmware versions of interfaces whose driver knows one, by name.
    eswitch_modes: `legacy` or `switchdev` for cards with an eswitch, by PCI address.
    routes: the routes through each interface, by index, except those of the kernel itself.
    shared_routes: the destinations of routes with several next hops, by the index of each interface that they use.
    """

    links: Sequence[Link] = ()
    addresses: Mapping[int, Sequence[Address]] = field(default_factory=dict)
    default_routes: Collection[int] = frozenset()
    firmware: Mapping[str, str] = field(default_factory=dict)
    eswitch_modes: Mapping[str, str] = field(default_factory=dict)
    routes: Mapping[int, Sequence[Route]] = field(default_factory=dict)
    shared_routes: Mapping[int, Sequence[str]] = field(default_factory=dict)


class Network(Protocol):
    """One network namespace. Methods raise NetworkError."""

    def links(self) -> list[Link]:
        """Return all interfaces."""

    def find(self, name: str) -> Link | None:
        """Find the interface with a name or an alternative name, without the settings of its virtual functions.

        It takes the same time however many interfaces there are. None if there is none.
        """

    def index(self, name: str) -> int:
        """Return the index of the interface with a name or an alternative name; 0 if there is none."""

    def addresses(self) -> dict[int, list[Address]]:
        """Return the addresses of each interface, by index, except those that the kernel makes by itself."""

    def neighbours(self, link: int) -> list[Neighbour]:
        """Return the permanent neighbours of an interface."""

    def snapshot(self) -> NetworkSnapshot:
        """Read what discovery and prepare need."""

    def change(self, link: int, *, name: str = "", mtu: int = 0, mac: str = "", up: bool | None = None) -> None:
        """Change an interface; only what is given."""

    def set_master(self, link: int, master: int) -> None:
        """Make an interface belong to a VRF, by its index; 0 for none."""

    def add_vrf(self, vrf: Vrf) -> None:
        """Add a VRF and switch it on; servers that are in no VRF answer in it, too."""

    def add_macvlan(self, name: str, parent: int, mac: str) -> None:
        """Add a macvlan on another interface, which bridges it with the others there."""

    def add_ipvlan(self, name: str, parent: int) -> None:
        """Add an ipvlan (L2) on another interface, whose MAC address it has."""

    def remove_link(self, link: int) -> None:
        """Remove an interface in software."""

    def move(self, link: int, namespace: int, index: int = 0, name: str = "") -> None:
        """Move an interface to another namespace, an open file, and switch it off.

        index: the index that it gets there; 0 for any. One that is taken is refused.
        name: its name there; empty for the one that it has. If one is taken there, the kernel refuses, and the
            interface may have moved nevertheless, under the name that it had.
        """

    def add_altname(self, link: int, name: str) -> None:
        """Give an interface an alternative name."""

    def remove_altname(self, link: int, name: str) -> None:
        """Remove an alternative name."""

    def add_address(self, link: int, address: Address) -> None:
        """Add an address; one that it has already is no error."""

    def set_address(self, link: int, address: Address) -> None:
        """Add an address, or change how long one is valid that the interface has."""

    def remove_address(self, link: int, address: Address) -> None:
        """Remove an address."""

    def add_route(self, link: int, route: Route) -> None:
        """Add a route through an interface; one that exists already is no error."""

    def add_rule(self, rule: RoutingRule) -> None:
        """Add a rule; one that exists already is no error."""

    def remove_rule(self, rule: RoutingRule) -> None:
        """Remove a rule; one that does not exist is no error."""

    def add_neighbour(self, link: int, neighbour: Neighbour) -> None:
        """Add a permanent neighbour, or replace it."""

    def packet_socket(self, name: str) -> socket.socket:
        """Open a packet socket (SOCK_DGRAM) of an interface for answers of DHCP servers; it stays in this namespace."""

    def set_vf(self, link: int, settings: VfSettings) -> None:
        """Change what a physical function prescribes for a virtual one; only what is not None."""

    def sysctls(self, name: str) -> dict[str, str]:
        """Read the sysctls of an interface: `ipv4.conf.arp_ignore`, `ipv6.neigh.gc_stale_time` and so on."""

    def set_sysctl(self, name: str, key: str, value: str) -> None:
        """Set a sysctl of an interface."""

    def ethtool(self, name: str) -> EthtoolSettings:
        """Read the features, channels and rings of an interface."""

    def ethtool_limits(self, name: str) -> EthtoolLimits:
        """Read what they may be."""

    def set_features(self, name: str, features: Mapping[str, bool]) -> list[str]:
        """Switch features of an interface; return those that another one prevents from being as wanted."""

    def set_channels(self, name: str, channels: Mapping[str, int]) -> None:
        """Set numbers of queues of an interface."""

    def set_rings(self, name: str, rings: Mapping[str, int]) -> None:
        """Set numbers of entries of an interface's rings."""


class NetworkNamespace(Protocol):
    """A network namespace that stays open until it is closed."""

    @property
    def handle(self) -> int:
        """The open file, for `Network.move`."""

    @property
    def identity(self) -> str:
        """What no other namespace has; empty if that is not known."""

    def run(self, work: Callable[[Network], T]) -> T:
        """Call a function with this namespace's network."""

    def close(self) -> None:
        """Close it."""


def named(network: Network, name: str) -> Link | None:
    """Find the interface with a name, not one that has it as an alternative name."""
    link = network.find(name)
    return link if link is not None and link.name == name else None
