"""Messages of netlink and what they mean: interfaces, addresses, routes and rules, as pyroute2 reads and writes them.

A message is a mapping of the fields of its header, with attributes by name. Source: rtnetlink(7); linux/if_addr.h,
linux/if_link.h and linux/rtnetlink.h for the numbers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from socket import AF_INET, AF_INET6
from typing import Any, Final

from dra_driver_nic.links import MAIN_TABLE, Address, Link, Route, Rule, VfSettings

_FAMILIES: Final = {4: AF_INET, 6: AF_INET6}
_IFF_UP: Final = 1
_FOREVER: Final = 0xFFFFFFFF
# Flags that a user sets: NODAD, HOMEADDRESS, MANAGETEMPADDR, NOPREFIXROUTE, MCAUTOJOIN.
_FLAGS_OF_USERS: Final = 0x02 | 0x10 | 0x100 | 0x200 | 0x400
_TEMPORARY: Final = 0x01  # IFA_F_TEMPORARY of IPv6
_OF_THE_KERNEL: Final = frozenset({1, 2, 3})  # IFAPROT_*: of the loopback, of router advertisements, link-local
_UNICAST: Final = 1  # RTN_UNICAST
_ONLINK: Final = 0x04  # RTNH_F_ONLINK, the only flag of a next hop that a user sets


def read_link(message: Any) -> Link:
    """The interface of a message RTM_NEWLINK."""
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
        table=_vrf_table(info),
    )


def _vrf_table(info: Any) -> int:
    if not info or info.get_attr("IFLA_INFO_KIND") != "vrf":
        return 0
    data = info.get_attr("IFLA_INFO_DATA")
    return int(data.get_attr("IFLA_VRF_TABLE") or 0) if data else 0


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


def vf_changes(settings: VfSettings) -> Iterator[dict[str, Any]]:
    """One change of a virtual function for each setting that is given."""
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


def is_automatic(message: Any) -> bool:
    """Whether the kernel makes this address by itself: link-local, or by a router's advertisement."""
    temporary = message["family"] == AF_INET6 and _flags_of(message) & _TEMPORARY
    return bool(temporary) or message.get_attr("IFA_PROTO") in _OF_THE_KERNEL


def _flags_of(message: Any) -> int:
    wide = message.get_attr("IFA_FLAGS")
    return int(message["flags"] if wide is None else wide)


def read_address(message: Any) -> Address:
    """The address of a message RTM_NEWADDR."""
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


def address_attributes(address: Address) -> dict[str, Any]:
    """What pyroute2 needs to add an address."""
    local = ipaddress.ip_interface(address.address)
    found: dict[str, Any] = {
        "local": str(local.ip),
        "address": address.peer or str(local.ip),
        "prefixlen": local.network.prefixlen,
        "family": _FAMILIES[local.version],
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


def table_of(message: Any) -> int:
    """The number of a route's table."""
    return int(message.get_attr("RTA_TABLE") or message["table"])


def is_default_route(message: Any) -> bool:
    """Whether this is a default route of the node itself; one of another table is for policy routing."""
    return not message["dst_len"] and message["type"] == _UNICAST and table_of(message) == MAIN_TABLE


def destination_of(message: Any) -> str:
    """The network of a route."""
    default = "0.0.0.0" if message["family"] == AF_INET else "::"  # noqa: S104 (the default route)
    return f"{message.get_attr('RTA_DST') or default}/{message['dst_len']}"


def read_route(message: Any) -> Route:
    """The route of a message RTM_NEWROUTE."""
    attribute = message.get_attr
    metrics = attribute("RTA_METRICS")
    via: Mapping[str, Any] = attribute("RTA_VIA") or {}
    return Route(
        destination=destination_of(message),
        gateway=attribute("RTA_GATEWAY") or via.get("addr", ""),
        source=attribute("RTA_PREFSRC") or "",
        scope=message["scope"],
        table=table_of(message),
        metric=attribute("RTA_PRIORITY") or 0,
        protocol=message["proto"],
        type=message["type"],
        tos=message["tos"],
        flags=message["flags"] & _ONLINK,
        mtu=(metrics.get_attr("RTAX_MTU") if metrics else None) or 0,
    )


def route_attributes(route: Route) -> dict[str, Any]:
    """What pyroute2 needs to add a route."""
    network = ipaddress.ip_network(route.destination)
    found: dict[str, Any] = {
        "family": _FAMILIES[network.version],
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


def rule_attributes(rule: Rule) -> dict[str, Any]:
    """What pyroute2 needs to add a rule."""
    found: dict[str, Any] = {"priority": rule.priority, "table": rule.table}
    for key, text in (("src", rule.source), ("dst", rule.destination)):
        if text:
            network = ipaddress.ip_network(text)
            found |= {key: str(network.network_address), f"{key}_len": network.prefixlen}
            found["family"] = _FAMILIES[network.version]
    return found
