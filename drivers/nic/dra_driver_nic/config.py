"""What a user may configure: `NicConfig` of `dra.net/v1alpha1`.

The names of fields are those of dranet, where it has the field.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Final, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from dra_driver_nic.network.links import LINK_SCOPE, LOCAL_TABLE, MAIN_TABLE, UNIVERSE
from dra_sdk import CelRule, OpaqueConfig
from dra_sdk.hardware.vfio import Iommu, IommuField

T = TypeVar("T")
API_VERSION: Final = "dra.net/v1alpha1"
MACVLAN: Final = "macvlan"
IPVLAN: Final = "ipvlan"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,15}")
_MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)
_SYSCTL: Final = re.compile(r"(ipv4|ipv6)\.(conf|neigh)\.[a-z0-9_]+")
_NETWORK: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_FEATURE: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_LARGEST_TABLE: Final = 0xFFFFFFFF
_LONGEST_IP: Final = 80  # an IPv6 address with its interface and a prefix length
_TABLES_OF_THE_KERNEL: Final = frozenset({253, MAIN_TABLE, LOCAL_TABLE})


def _interface_name(text: str) -> str:
    if not _NAME.fullmatch(text) or text in {".", "..", "lo", "all", "default"}:
        raise ValueError(
            f"must be a name of at most 15 letters, digits, '.', '_' and '-', but not lo, all or default; is {text!r}"
        )
    return text


def _mac(text: str) -> str:
    if not _MAC.fullmatch(text):
        raise ValueError(f"must be a MAC address such as 02:00:00:00:00:01, is {text!r}")
    if int(text[:2], 16) & 1 or set(text) <= {"0", ":"}:
        raise ValueError(f"must be the MAC address of one station, not of a group or zero; is {text}")
    return text.lower()


def _with_prefix(text: str) -> str:
    if "/" not in text:
        raise ValueError(f"must have a prefix length, such as {text}/24")
    parsed = _parsed(ipaddress.ip_interface, text, "an address with prefix length, such as 10.0.0.5/24")
    if parsed.ip.is_unspecified or parsed.ip.is_multicast or parsed.ip.is_loopback:
        raise ValueError(f"must be the address of one station, is {text}")
    return str(parsed)


def _network(text: str) -> str:
    return str(_parsed(ipaddress.ip_network, text, "a network without host bits, such as 10.1.0.0/16"))


def _ip(text: str) -> str:
    return str(_parsed(ipaddress.ip_address, text, "an IP address, such as 10.0.0.1"))


def _sysctl(text: str) -> str:
    if not _SYSCTL.fullmatch(text):
        raise ValueError(f"must be a sysctl of an interface, such as ipv4.conf.rp_filter; is {text!r}")
    return text


def _conflist(text: str) -> str:
    if not _NETWORK.fullmatch(text):
        raise ValueError(f"must be the name of a CNI network: letters, digits, '.', '_' and '-'; is {text!r}")
    return text


def _feature(text: str) -> str:
    if not _FEATURE.fullmatch(text):
        raise ValueError(f"must be a feature as `ethtool -k` names it, such as tx-checksum-ip-generic; is {text!r}")
    return text


def _vrf_table(number: int) -> int:
    if number in _TABLES_OF_THE_KERNEL:
        raise ValueError(f"must not be {number}, a table that every namespace has")
    return number


def _table(number: int) -> int:
    if number == LOCAL_TABLE:
        raise ValueError(f"must not be {LOCAL_TABLE}, the table local, which the kernel keeps")
    return number


def _parsed(parse: Callable[[str], T], text: str, wanted: str) -> T:
    try:
        return parse(text)
    except ValueError:
        raise ValueError(f"must be {wanted}; is {text!r}") from None


InterfaceName = Annotated[str, Field(max_length=15, examples=["net0", "net1"]), AfterValidator(_interface_name)]
Mac = Annotated[str, Field(max_length=17, examples=["02:00:00:00:00:01"]), AfterValidator(_mac)]
IpWithPrefix = Annotated[
    str, Field(max_length=_LONGEST_IP, examples=["10.0.0.5/24", "fd00::5/64"]), AfterValidator(_with_prefix)
]
IpNetwork = Annotated[str, Field(max_length=_LONGEST_IP, examples=["10.1.0.0/16", "::/0"]), AfterValidator(_network)]
Ip = Annotated[str, Field(max_length=_LONGEST_IP, examples=["10.0.0.1", "fd00::1"]), AfterValidator(_ip)]
Sysctl = Annotated[
    str, Field(max_length=128, examples=["ipv4.conf.arp_ignore", "ipv4.conf.arp_announce"]), AfterValidator(_sysctl)
]
Table = Annotated[int, Field(ge=1, le=_LARGEST_TABLE), AfterValidator(_table)]
VrfTable = Annotated[int, Field(ge=1, le=_LARGEST_TABLE), AfterValidator(_vrf_table)]
Feature = Annotated[str, Field(max_length=32, examples=["tso", "gro"]), AfterValidator(_feature)]
Conflist = Annotated[str, Field(max_length=253, examples=["tuned"]), AfterValidator(_conflist)]
Number = Annotated[int, Field(strict=True, ge=0, le=0xFFFFFFFF)]


class _Section(BaseModel):
    """A part of the configuration."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class VrfConfig(_Section):
    """A VRF of the pod, to which the interface belongs. Interfaces with one name share it."""

    name: InterfaceName = Field(description="The name of its interface.")
    table: VrfTable | None = Field(
        default=None, description="Its routing table; by default one from 1000 to 1999 that follows from the name."
    )

    @property
    def number(self) -> int:
        """Its routing table. The default is that of dranet: FNV-1a of the name, in 32 bits."""
        if self.table is not None:
            return self.table
        digest = 0x811C9DC5
        for byte in self.name.encode():
            digest = ((digest ^ byte) * 0x01000193) & 0xFFFFFFFF
        return digest % 1000 + 1000


class InterfaceConfig(_Section):
    """The interface as the pod sees it."""

    name: InterfaceName | None = Field(default=None, description="Its name in the pod; by default that on the node.")
    addresses: tuple[IpWithPrefix, ...] | None = Field(
        default=None, max_length=16, description="Its addresses; by default the global ones that it has on the node."
    )
    dhcp: bool = Field(default=False, strict=True, description="Whether a DHCP server gives it an IPv4 address.")
    mtu: int | None = Field(default=None, ge=68, le=65535, description="Its MTU in bytes.")
    hardware_addr: Mac | None = Field(default=None, description="Its MAC address.")
    arp_ignore: Literal[0, 1, 2, 3, 8] | None = Field(default=None, description="The sysctl arp_ignore.")
    arp_announce: Literal[0, 1, 2] | None = Field(default=None, description="The sysctl arp_announce.")
    sysctls: dict[Sysctl, str] = Field(
        default={}, max_length=64, description="Sysctls of the interface, such as ipv4.conf.rp_filter."
    )
    vrf: VrfConfig | None = Field(default=None, description="The VRF to which it belongs in the pod.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.dhcp and self.addresses is not None:
            raise ValueError("addresses cannot be given with dhcp")
        _refuse_twice("addresses", (str(ipaddress.ip_interface(address).ip) for address in self.addresses or ()))
        for field, key in (("arpIgnore", "ipv4.conf.arp_ignore"), ("arpAnnounce", "ipv4.conf.arp_announce")):
            given = self.arp_ignore if field == "arpIgnore" else self.arp_announce
            if given is not None and key in self.sysctls:
                raise ValueError(f"sysctls.{key} and {field} set the same value; give one of them")
        if self.vrf is not None and self.vrf.name == self.name:
            raise ValueError(f"vrf.name and name are both {self.name}; give the VRF another name")
        return self


class RouteConfig(_Section):
    """A route through the interface."""

    destination: IpNetwork = Field(description="The network that it leads to; 0.0.0.0/0 or ::/0 for a default route.")
    gateway: Ip | None = Field(default=None, description="The next hop; may be missing with scope 253 (link) only.")
    source: Ip | None = Field(default=None, description="The preferred source address.")
    scope: Literal[0, 253] = Field(default=0, description="0: global, 253: link.")
    table: Table = Field(default=MAIN_TABLE, description="The routing table; with a VRF, 254 means that of the VRF.")
    metric: int = Field(default=0, ge=0, le=0xFFFFFFFF, description="The priority; 0 for that of the kernel.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        _same_family("gateway", self.gateway, "destination", self.destination)
        _same_family("source", self.source, "destination", self.destination)
        if self.gateway is None and self.scope == UNIVERSE:
            raise ValueError(f"gateway is missing for destination {self.destination}; without it scope must be 253")
        if self.gateway is not None and self.scope == LINK_SCOPE:
            raise ValueError(f"gateway {self.gateway} cannot have scope 253, which is for networks without a gateway")
        return self


class RuleConfig(_Section):
    """A rule of policy routing in the pod."""

    priority: int = Field(ge=1, le=32765, description="Rules are tried in this order.")
    source: IpNetwork | None = Field(default=None, description="The network of the sender.")
    destination: IpNetwork | None = Field(default=None, description="The network of the receiver.")
    table: Table = Field(description="The routing table that is used.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.source is None and self.destination is None:
            raise ValueError("source or destination must be given")
        _same_family("source", self.source, "destination", self.destination)
        return self


class NeighbourConfig(_Section):
    """A permanent entry of the neighbour table."""

    destination: Ip = Field(description="The IP address.")
    hardware_addr: Mac = Field(description="Its MAC address.")


class EthtoolConfig(_Section):
    """What `ethtool` sets of the interface. What is not given stays as it is."""

    features: dict[Feature, Annotated[bool, Field(strict=True)]] = Field(
        default={}, max_length=64, description="Features to switch, by the names or short names of `ethtool -K`."
    )
    channels: dict[Literal["rx", "tx", "other", "combined"], Number] = Field(
        default={}, description="Numbers of queues, as `ethtool -L` sets them."
    )
    rings: dict[Literal["rx", "rxMini", "rxJumbo", "tx"], Number] = Field(
        default={}, description="Numbers of entries of rings, as `ethtool -G` sets them."
    )


class CniConfig(_Section):
    """Plugins of CNI that are called for the interface, after it is in the pod."""

    conflist: Conflist = Field(description="The name of a network in a *.conflist of the node.")


class VfConfig(_Section):
    """What the physical function prescribes for a virtual function. What is not given stays as it is."""

    vlan: int | None = Field(default=None, ge=0, le=4094, description="The VLAN id; 0 for none.")
    qos: int | None = Field(default=None, ge=0, le=7, description="The VLAN priority.")
    trust: bool | None = Field(default=None, strict=True, description="Whether the function may do more.")
    spoofchk: bool | None = Field(
        default=None, strict=True, description="Whether foreign source addresses are dropped."
    )
    min_tx_rate: int | None = Field(default=None, ge=0, description="Guaranteed Mbit/s; 0 for none.")
    max_tx_rate: int | None = Field(default=None, ge=0, description="Limit in Mbit/s; 0 for none.")
    link_state: Literal["auto", "enable", "disable"] | None = Field(default=None, description="The state of the link.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.qos is not None and (self.vlan is None or (self.qos and not self.vlan)):
            raise ValueError(f"qos {self.qos} needs vlan, and another one than 0: frames without VLAN have no priority")
        if self.min_tx_rate and self.max_tx_rate and self.min_tx_rate > self.max_tx_rate:
            raise ValueError(f"minTxRate {self.min_tx_rate} must not exceed maxTxRate {self.max_tx_rate}")
        return self


_CONFIGURES_INTERFACE: Final = " || ".join(
    [
        "self.interface.dhcp",
        *(f"has(self.interface.{name})" for name in ("name", "addresses", "mtu", "hardwareAddr", "arpIgnore")),
        *(f"has(self.interface.{name})" for name in ("arpAnnounce", "vrf")),
        *(f"self.ethtool.{name}.size() > 0" for name in ("features", "channels", "rings")),
        *(f"(has(self.{name}) && self.{name}.size() > 0)" for name in ("routes", "neighbors")),
        "self.interface.sysctls.size() > 0",
        "self.rules.size() > 0",
        "has(self.cni)",
    ]
)


def _of_one_family(one: str, other: str) -> str:
    """Return CEL that is true if two addresses or networks of a variable `r` are of one family, or one is absent."""
    return f'!has(r.{one}) || !has(r.{other}) || r.{one}.contains(":") == r.{other}.contains(":")'


class NicConfig(OpaqueConfig, api_version=API_VERSION):
    """How a pod gets a network device."""

    interface: InterfaceConfig = Field(default_factory=InterfaceConfig)
    routes: tuple[RouteConfig, ...] | None = Field(
        default=None, max_length=256, description="Routes; by default those through the interface on the node."
    )
    rules: tuple[RuleConfig, ...] = Field(default=(), max_length=256)
    neighbors: tuple[NeighbourConfig, ...] | None = Field(
        default=None, max_length=256, description="Neighbours; by default the permanent ones on the node."
    )
    ethtool: EthtoolConfig = Field(default_factory=EthtoolConfig)
    cni: CniConfig | None = Field(default=None, description="Plugins of CNI that are chained after the interface.")
    vf: VfConfig | None = Field(default=None, description="For virtual functions only.")
    shared_mode: Literal["macvlan", "ipvlan"] | None = Field(
        default=None,
        description="For shared interfaces only: the kind of interface that the claim gets on it; by default macvlan.",
    )
    rdma: bool | None = Field(
        default=None,
        strict=True,
        description="Whether containers get the RDMA device nodes; true requires them. By default if there are some.",
    )
    driver: Literal["vfio-pci"] | None = Field(
        default=None, description="vfio-pci: a PCI function for DPDK or a virtual machine in place of an interface."
    )
    iommu: IommuField = Field(default_factory=Iommu, description="How such a function is opened.")

    cel_rules = (
        CelRule(
            f"!has(self.driver) || !({_CONFIGURES_INTERFACE})",
            "interface, routes, rules, neighbors, ethtool and cni cannot be given with driver",
        ),
        CelRule("!has(self.driver) || !has(self.rdma) || !self.rdma", "rdma cannot be given with driver"),
        CelRule(
            "!has(self.interface.vrf) || self.rules.size() == 0",
            "rules cannot be given with interface.vrf: the kernel has a rule for its table",
        ),
        CelRule(
            "!self.interface.dhcp || !has(self.interface.addresses)",
            "interface.addresses cannot be given with interface.dhcp",
        ),
        CelRule(
            "!has(self.interface.addresses) || "
            "self.interface.addresses.all(a, self.interface.addresses.exists_one(b, a == b))",
            "interface.addresses contains an address twice",
        ),
        CelRule(
            '!has(self.interface.arpIgnore) || !("ipv4.conf.arp_ignore" in self.interface.sysctls)',
            "interface.sysctls.ipv4.conf.arp_ignore and arpIgnore set the same value; give one of them",
        ),
        CelRule(
            '!has(self.interface.arpAnnounce) || !("ipv4.conf.arp_announce" in self.interface.sysctls)',
            "interface.sysctls.ipv4.conf.arp_announce and arpAnnounce set the same value; give one of them",
        ),
        CelRule(
            "!has(self.interface.vrf) || !has(self.interface.name) || self.interface.vrf.name != self.interface.name",
            "interface.vrf.name and interface.name are the same; give the VRF another name",
        ),
        CelRule(
            f"!has(self.routes) || self.routes.all(r, has(r.gateway) == (r.scope == {UNIVERSE}))",
            f"routes need a gateway unless their scope is {LINK_SCOPE}, and have none then",
        ),
        CelRule(
            f"!has(self.routes) || self.routes.all(r, ({_of_one_family('gateway', 'destination')}) && "
            f"({_of_one_family('source', 'destination')}))",
            "destination, gateway and source of a route must be of one IP family",
        ),
        CelRule(
            "self.rules.all(r, has(r.source) || has(r.destination))", "source or destination of a rule must be given"
        ),
        CelRule(
            f"self.rules.all(r, {_of_one_family('source', 'destination')})",
            "source and destination of a rule must be of one IP family",
        ),
        CelRule(
            "!has(self.vf) || !has(self.vf.qos) || (has(self.vf.vlan) && (self.vf.qos == 0 || self.vf.vlan != 0))",
            "vf.qos needs vf.vlan, and another one than 0",
        ),
        CelRule(
            "!has(self.vf) || !has(self.vf.minTxRate) || !has(self.vf.maxTxRate) || self.vf.maxTxRate == 0 || "
            "self.vf.minTxRate <= self.vf.maxTxRate",
            "vf.minTxRate must not exceed vf.maxTxRate",
        ),
    )

    @property
    def configures_interface(self) -> bool:
        """Whether it asks for anything that only an interface has."""
        configured = (self.interface, self.ethtool) != (InterfaceConfig(), EthtoolConfig())
        return bool(configured or self.routes or self.rules or self.neighbors or self.cni)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.driver is not None and self.configures_interface:
            raise ValueError(
                f"interface, routes, rules, neighbors, ethtool and cni cannot be given with driver {self.driver}"
            )
        if self.interface.vrf is not None and self.rules:
            raise ValueError("rules cannot be given with interface.vrf: the kernel has a rule for its table")
        if self.driver is not None and self.rdma:
            raise ValueError(f"rdma cannot be given with driver {self.driver}")
        _refuse_twice("routes", (f"{route.destination} of table {route.table}" for route in self.routes or ()))
        _refuse_twice("neighbors", (neighbour.destination for neighbour in self.neighbors or ()))
        return self


def _same_family(one: str, value: str | None, other: str, against: str | None) -> None:
    if value is None or against is None:
        return
    versions = [ipaddress.ip_network(text, strict=False).version for text in (value, against)]
    if versions[0] != versions[1]:
        raise ValueError(f"{one} {value} is IPv{versions[0]}, but {other} {against} is IPv{versions[1]}")


def _refuse_twice(field: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{field} contains {value} twice")
        seen.add(value)
