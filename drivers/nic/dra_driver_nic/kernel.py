"""The kernel's network namespaces by netlink: what `dra_driver_nic.links` describes, by the library pyroute2.

A thread of its own enters the namespace, so the rest of the process stays where it is. Source: rtnetlink(7), setns(2),
network_namespaces(7); linux/if_addr.h, linux/if_link.h and linux/rtnetlink.h for the numbers.
"""

from __future__ import annotations

import ctypes
import errno
import ipaddress
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socket import AF_INET, AF_INET6
from threading import Thread
from typing import Any, Final, TypeVar

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from dra_driver_nic.links import (
    KERNEL,
    LOCAL_TABLE,
    MAIN_TABLE,
    Address,
    Link,
    Neighbour,
    Network,
    NetworkError,
    Route,
    Rule,
    Snapshot,
    VfSettings,
)

T = TypeVar("T")
_CLONE_NEWNET: Final = 0x40000000
_SYSCTLS: Final = Path("/proc/sys/net")  # of the thread's own namespace
_IFF_UP: Final = 1
_EXT_MASK_VF: Final = 1
_PERMANENT: Final = 0x80  # NUD_PERMANENT of neighbours
_FOREVER: Final = 0xFFFFFFFF
# Flags that a user sets: NODAD, HOMEADDRESS, MANAGETEMPADDR, NOPREFIXROUTE, MCAUTOJOIN.
_FLAGS_OF_USERS: Final = 0x02 | 0x10 | 0x100 | 0x200 | 0x400
_TEMPORARY: Final = 0x01  # IFA_F_TEMPORARY of IPv6
_OF_THE_KERNEL: Final = frozenset({1, 2, 3})  # IFAPROT_*: of the loopback, of router advertisements, link-local
_CLONED: Final = 0x200  # RTM_F_CLONED: an entry of a cache
_UNICAST: Final = 1  # RTN_UNICAST
_ONLINK: Final = 0x04  # RTNH_F_ONLINK, the only flag of a next hop that a user sets


class KernelNamespace:
    """A network namespace, by its path. OSError if it cannot be opened."""

    def __init__(self, path: str | Path = "/proc/self/ns/net") -> None:
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def handle(self) -> int:
        """The open file."""
        return self._handle

    def run(self, work: Callable[[Network], T]) -> T:
        """Call a function in a thread that is in this namespace. What it raises is raised here."""
        results: list[T] = []
        errors: list[BaseException] = []

        def enter() -> None:
            try:
                _set_namespace(self._handle)
                with IPRoute() as netlink:
                    results.append(work(KernelNetwork(netlink)))
            except BaseException as error:  # noqa: BLE001 (it is raised in the thread that waits)
                errors.append(error)

        thread = Thread(target=enter, name="network namespace")
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def close(self) -> None:
        """Close the file; the namespace stays as long as something else is in it."""
        os.close(self._handle)


def _set_namespace(handle: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(handle, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter a network namespace: {os.strerror(number)}")


class KernelNetwork:
    """The network of the namespace in which the calling thread is."""

    def __init__(self, netlink: IPRoute) -> None:
        self._netlink = netlink

    # -- reading

    def links(self) -> list[Link]:
        """As `Network.links`."""
        with _reading("interfaces"):
            return sorted((_link(each) for each in self._netlink.link("dump", ext_mask=_EXT_MASK_VF)), key=_by_index)

    def addresses(self, link: int) -> list[Address]:
        """As `Network.addresses`."""
        with _reading("addresses"):
            found = [each for each in self._netlink.get_addr(index=link) if each["index"] == link]
        return [_address(each) for each in found if not _is_automatic(each)]

    def routes(self, link: int) -> list[Route]:
        """As `Network.routes`."""
        with _reading("routes"):
            found = [each for each in self._routes() if each.get_attr("RTA_OIF") == link]
        return [_route(each) for each in found if each["proto"] != KERNEL]

    def neighbours(self, link: int) -> list[Neighbour]:
        """As `Network.neighbours`."""
        with _reading("neighbours"):
            found = [each for family in (AF_INET, AF_INET6) for each in self._netlink.get_neighbours(family=family)]
        return [
            Neighbour(address=each.get_attr("NDA_DST"), mac=each.get_attr("NDA_LLADDR"))
            for each in found
            if each["ifindex"] == link and each["state"] & _PERMANENT and each.get_attr("NDA_LLADDR")
        ]

    def shared_routes(self, link: int) -> list[str]:
        """As `Network.shared_routes`."""
        with _reading("routes"):
            return [
                _destination(each)
                for each in self._routes()
                if link in {hop["oif"] for hop in each.get_attr("RTA_MULTIPATH") or ()}
            ]

    def snapshot(self) -> Snapshot:
        """As `Network.snapshot`."""
        addresses: dict[int, list[Address]] = {}
        with _reading("addresses and routes"):
            for each in self._netlink.get_addr():
                if not _is_automatic(each):
                    addresses.setdefault(each["index"], []).append(_address(each))
            defaults = [each for each in self._routes() if _is_default(each)]
        single = {each.get_attr("RTA_OIF") for each in defaults}
        several = {hop["oif"] for each in defaults for hop in each.get_attr("RTA_MULTIPATH") or ()}
        return Snapshot(self.links(), addresses, frozenset(single | several) - {None})

    def _routes(self) -> Iterator[Any]:
        """All routes but those of the table `local`, which the kernel keeps, and of caches."""
        for family in (AF_INET, AF_INET6):
            for each in self._netlink.get_routes(family=family):
                if _table(each) != LOCAL_TABLE and not each["flags"] & _CLONED:
                    yield each

    # -- changing

    def change(self, link: int, *, name: str = "", mtu: int = 0, mac: str = "", up: bool | None = None) -> None:
        """As `Network.change`."""
        given: dict[str, Any] = {"ifname": name, "mtu": mtu, "address": mac}
        changes = {key: value for key, value in given.items() if value}
        if up is not None:
            changes["state"] = "up" if up else "down"
        told = ", ".join(f"{key} {value}" for key, value in changes.items())
        with _changing(f"set {told} of interface {link}"):
            self._netlink.link("set", index=link, **changes)

    def move(self, link: int, namespace: int, index: int = 0) -> None:
        """As `Network.move`."""
        wanted = {"new_ifindex": index} if index else {}
        with _changing(f"move interface {link} to another network namespace"):
            self._netlink.link("set", index=link, net_ns_fd=namespace, **wanted)

    def add_altname(self, link: int, name: str) -> None:
        """As `Network.add_altname`."""
        with _changing(f"give interface {link} the alternative name {name}"):
            self._netlink.link("property_add", index=link, altname=name)

    def remove_altname(self, link: int, name: str) -> None:
        """As `Network.remove_altname`."""
        with _changing(f"remove the alternative name {name} of interface {link}"):
            self._netlink.link("property_del", index=link, altname=name)

    def add_address(self, link: int, address: Address) -> None:
        """As `Network.add_address`."""
        with _changing(f"add address {address.address} to interface {link}", errno.EEXIST):
            self._netlink.addr("add", index=link, **_address_attributes(address))

    def remove_address(self, link: int, address: Address) -> None:
        """As `Network.remove_address`."""
        local = ipaddress.ip_interface(address.address)
        with _changing(f"remove address {address.address} of interface {link}", errno.EADDRNOTAVAIL):
            self._netlink.addr("del", index=link, address=str(local.ip), prefixlen=local.network.prefixlen)

    def add_route(self, link: int, route: Route) -> None:
        """As `Network.add_route`."""
        with _changing(f"add route {route.destination} through interface {link}", errno.EEXIST):
            self._netlink.route("add", oif=link, **_route_attributes(route))

    def add_rule(self, rule: Rule) -> None:
        """As `Network.add_rule`."""
        attributes: dict[str, Any] = {"priority": rule.priority, "table": rule.table}
        for key, text in (("src", rule.source), ("dst", rule.destination)):
            if text:
                network = ipaddress.ip_network(text)
                attributes |= {key: str(network.network_address), f"{key}_len": network.prefixlen}
                attributes["family"] = AF_INET if network.version == 4 else AF_INET6  # noqa: PLR2004 (IP versions)
        with _changing(f"add rule {rule.priority} for table {rule.table}", errno.EEXIST):
            self._netlink.rule("add", **attributes)

    def add_neighbour(self, link: int, neighbour: Neighbour) -> None:
        """As `Network.add_neighbour`."""
        with _changing(f"add neighbour {neighbour.address} to interface {link}"):
            self._netlink.neigh("replace", ifindex=link, dst=neighbour.address, lladdr=neighbour.mac, state=_PERMANENT)

    def set_vf(self, link: int, settings: VfSettings) -> None:
        """As `Network.set_vf`, one message for each setting: a card that lacks one refuses the whole message."""
        for changes in _vf_changes(settings):
            told = ", ".join(f"{key} {value}" for key, value in changes.items())
            with _changing(f"set {told} of virtual function {settings.number} of interface {link}"):
                self._netlink.link("set", index=link, vf={"vf": settings.number, **changes})

    # -- sysctls

    def sysctls(self, name: str) -> dict[str, str]:
        """As `Network.sysctls`. One that cannot be read, as a secret of IPv6 that is not set, is left out."""
        found = {}
        for prefix in ("ipv4/conf", "ipv6/conf", "ipv4/neigh", "ipv6/neigh"):
            for path in (_SYSCTLS / prefix / name).glob("*"):
                try:
                    found[f"{prefix.replace('/', '.')}.{path.name}"] = path.read_text(encoding="ascii").strip()
                except OSError:
                    continue
        return found

    def set_sysctl(self, name: str, key: str, value: str) -> None:
        """As `Network.set_sysctl`."""
        family, kind, entry = key.split(".")
        path = _SYSCTLS / family / kind / name / entry
        try:
            path.write_text(value, encoding="ascii")
        except OSError as error:
            raise NetworkError(
                f"sysctl {path} cannot be set to {value!r}: {error.strerror}", error.errno or 0
            ) from error


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except (NetlinkError, OSError) as error:
        raise NetworkError(f"{what} cannot be read from the kernel: {error}") from error


@contextmanager
def _changing(what: str, *expected: int) -> Iterator[None]:
    """Turn an error of netlink into a sentence; `expected` are numbers of errors that do no harm."""
    try:
        yield
    except NetlinkError as error:
        if error.code not in expected:
            raise NetworkError(f"the kernel refused to {what}: {os.strerror(error.code)}", error.code) from error


def _by_index(link: Link) -> int:
    return link.index


def _link(message: Any) -> Link:
    attribute = message.get_attr
    info = attribute("IFLA_LINKINFO")
    elsewhere = attribute("IFLA_LINK_NETNSID") is not None
    names = attribute("IFLA_PROP_LIST")
    return Link(
        index=message["index"],
        name=attribute("IFLA_IFNAME"),
        kind=(info.get_attr("IFLA_INFO_KIND") if info else None) or "",
        mac=attribute("IFLA_ADDRESS") or "",
        mtu=attribute("IFLA_MTU") or 0,
        min_mtu=attribute("IFLA_MIN_MTU") or 0,
        max_mtu=attribute("IFLA_MAX_MTU") or 0,
        up=bool(message["flags"] & _IFF_UP),
        state=(attribute("IFLA_OPERSTATE") or "unknown").lower(),
        carrier=bool(attribute("IFLA_CARRIER")),
        arp_type=message["ifi_type"],
        alias=attribute("IFLA_IFALIAS") or "",
        altnames=tuple(sorted(names.altnames())) if names else (),
        parent=0 if elsewhere else attribute("IFLA_LINK") or 0,
        master=attribute("IFLA_MASTER") or 0,
        vfs=tuple(map(_vf, (attribute("IFLA_VFINFO_LIST") or {"attrs": ()})["attrs"])),
    )


def _vf(entry: Any) -> VfSettings:
    info = dict(entry[1]["attrs"])
    vlan: Mapping[str, Any] = info.get("IFLA_VF_VLAN", {})
    rate: Mapping[str, Any] = info.get("IFLA_VF_RATE", {})
    return VfSettings(
        number=info["IFLA_VF_MAC"]["vf"],
        mac=info["IFLA_VF_MAC"]["mac"],
        vlan=vlan.get("vlan"),
        qos=vlan.get("qos"),
        spoofchk=_switch(info, "IFLA_VF_SPOOFCHK"),
        trust=_switch(info, "IFLA_VF_TRUST"),
        min_tx_rate=rate.get("min_tx_rate"),
        max_tx_rate=rate.get("max_tx_rate"),
        link_state=info.get("IFLA_VF_LINK_STATE", {}).get("link_state"),
    )


def _switch(info: Mapping[str, Any], name: str) -> bool | None:
    """A setting that is on or off; None if the card does not have it."""
    value = info.get(name, {}).get("setting")
    return None if value in {None, _FOREVER} else bool(value)


def _vf_changes(settings: VfSettings) -> Iterator[dict[str, Any]]:
    if settings.mac is not None:
        yield {"mac": settings.mac}
    if settings.vlan is not None:
        yield {"vlan": {"vlan": settings.vlan, "qos": settings.qos or 0}}
    for name in ("spoofchk", "trust", "link_state"):
        value = getattr(settings, name)
        if value is not None:
            yield {name: int(value)}
    if settings.min_tx_rate is not None or settings.max_tx_rate is not None:
        yield {"rate": {"min_tx_rate": settings.min_tx_rate or 0, "max_tx_rate": settings.max_tx_rate or 0}}


def _is_automatic(message: Any) -> bool:
    """Whether the kernel makes this address by itself: link-local, or by a router's advertisement."""
    temporary = message["family"] == AF_INET6 and _flags_of(message) & _TEMPORARY
    return bool(temporary) or message.get_attr("IFA_PROTO") in _OF_THE_KERNEL


def _flags_of(message: Any) -> int:
    wide = message.get_attr("IFA_FLAGS")
    return int(message["flags"] if wide is None else wide)


def _address(message: Any) -> Address:
    attribute = message.get_attr
    local = attribute("IFA_LOCAL") or attribute("IFA_ADDRESS")
    peer = attribute("IFA_ADDRESS")
    life = attribute("IFA_CACHEINFO") or {}
    return Address(
        address=f"{local}/{message['prefixlen']}",
        peer="" if peer == local else peer,
        broadcast=attribute("IFA_BROADCAST") or "",
        label=attribute("IFA_LABEL") or "",
        scope=message["scope"],
        flags=_flags_of(message) & _FLAGS_OF_USERS,
        metric=attribute("IFA_RT_PRIORITY") or 0,
        valid=_seconds(life.get("ifa_valid")),
        preferred=_seconds(life.get("ifa_preferred")),
    )


def _seconds(value: int | None) -> int | None:
    return None if value in {None, _FOREVER} else value


def _address_attributes(address: Address) -> dict[str, Any]:
    local = ipaddress.ip_interface(address.address)
    found: dict[str, Any] = {
        "local": str(local.ip),
        "address": address.peer or str(local.ip),
        "prefixlen": local.network.prefixlen,
        "family": AF_INET if local.version == 4 else AF_INET6,  # noqa: PLR2004 (IP versions)
        "scope": address.scope,
    }
    optional = {"broadcast": address.broadcast, "label": address.label, "rt_priority": address.metric}
    found |= {key: value for key, value in optional.items() if value}
    if address.flags:
        found["flags"] = address.flags
    if address.valid is not None:
        found |= {
            "valid_lft": address.valid,
            "preferred_lft": _FOREVER if address.preferred is None else address.preferred,
        }
    return found


def _table(message: Any) -> int:
    return int(message.get_attr("RTA_TABLE") or message["table"])


def _is_default(message: Any) -> bool:
    """Whether this is a default route of the node itself; one of another table is for policy routing."""
    return not message["dst_len"] and message["type"] == _UNICAST and _table(message) == MAIN_TABLE


def _destination(message: Any) -> str:
    default = "0.0.0.0" if message["family"] == AF_INET else "::"  # noqa: S104 (the default route)
    return f"{message.get_attr('RTA_DST') or default}/{message['dst_len']}"


def _route(message: Any) -> Route:
    attribute = message.get_attr
    metrics = attribute("RTA_METRICS")
    via: Mapping[str, Any] = attribute("RTA_VIA") or {}
    return Route(
        destination=_destination(message),
        gateway=attribute("RTA_GATEWAY") or via.get("addr", ""),
        source=attribute("RTA_PREFSRC") or "",
        scope=message["scope"],
        table=_table(message),
        metric=attribute("RTA_PRIORITY") or 0,
        protocol=message["proto"],
        type=message["type"],
        tos=message["tos"],
        flags=message["flags"] & _ONLINK,
        mtu=(metrics.get_attr("RTAX_MTU") if metrics else None) or 0,
    )


def _route_attributes(route: Route) -> dict[str, Any]:
    network = ipaddress.ip_network(route.destination)
    found: dict[str, Any] = {
        "family": AF_INET if network.version == 4 else AF_INET6,  # noqa: PLR2004 (IP versions)
        "dst": route.destination,
        "table": route.table,
        "scope": route.scope,
        "proto": route.protocol,
        "type": route.type,
        "tos": route.tos,
    }
    if route.gateway and ipaddress.ip_address(route.gateway).version != network.version:
        found["via"] = {"family": AF_INET6, "addr": route.gateway}  # IPv4 by a next hop of IPv6
    elif route.gateway:
        found["gateway"] = route.gateway
    optional = {"prefsrc": route.source, "priority": route.metric, "flags": route.flags}
    found |= {key: value for key, value in optional.items() if value}
    if route.mtu:
        found["metrics"] = {"mtu": route.mtu}
    return found
