"""Messages of netlink and what they mean: interfaces, addresses, routes and rules, as pyroute2 reads and writes them.

A message is a mapping of the fields of its header, with attributes by name. Source: rtnetlink(7); linux/if_addr.h,
linux/if_link.h and linux/rtnetlink.h for the numbers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from socket import AF_INET, AF_INET6
from typing import Any, Final

from dra_driver_nic.links import MAIN_TABLE, Address, Link, Neighbour, Route, Rule, VfSettings
from dra_driver_nic.netlink import Content

_FAMILIES: Final = {4: AF_INET, 6: AF_INET6}
_IFF_UP: Final = 1
_FOREVER: Final = 0xFFFFFFFF
# Flags that a user sets: NODAD, HOMEADDRESS, MANAGETEMPADDR, NOPREFIXROUTE, MCAUTOJOIN.
_FLAGS_OF_USERS: Final = 0x02 | 0x10 | 0x100 | 0x200 | 0x400
_TEMPORARY: Final = 0x01  # IFA_F_TEMPORARY of IPv6
_OF_THE_KERNEL: Final = frozenset({1, 2, 3})  # IFAPROT_*: of the loopback, of router advertisements, link-local
_UNICAST: Final = 1  # RTN_UNICAST
_ONLINK: Final = 0x04  # RTNH_F_ONLINK, the only flag of a next hop that a user sets
_TO_TABLE: Final = 1  # FR_ACT_TO_TBL
PERMANENT: Final = 0x80  # NUD_PERMANENT of neighbours


def read_link(message: Any) -> Link:
    """The interface of a message RTM_NEWLINK."""
    attribute = _attributes(message)
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


def _attributes(message: Any) -> Callable[[str], Any]:
    """The attributes of a message, by name. `get_attr` of pyroute2 reads all of them for each that is asked for."""
    places = {each[0]: each for each in reversed(message["attrs"])}
    return lambda name: places[name][1] if name in places else None


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


def link_change(
    link: int, *, name: str = "", mtu: int = 0, mac: str = "", up: bool | None = None, master: int | None = None
) -> Content:
    """What changes an interface: only what is given. `master` is 0 for none."""
    attributes: list[tuple[str, Any]] = [("IFLA_IFNAME", name), ("IFLA_MTU", mtu), ("IFLA_ADDRESS", mac)]
    given = [each for each in attributes if each[1]]
    if master is not None:
        given.append(("IFLA_MASTER", master))
    state = {} if up is None else {"flags": int(up), "change": _IFF_UP}
    return Content({"index": link, **state}, given)


def new_link(
    name: str, kind: str, data: tuple[str, Any], *, parent: int = 0, mac: str = "", up: bool = False
) -> Content:
    """An interface in software.

    data: what only its kind has, as an attribute of the kernel.
    parent: the index of the interface on which it stands; 0 for none.
    """
    optional: list[tuple[str, Any]] = [("IFLA_LINK", parent), ("IFLA_ADDRESS", mac)]
    info = nested(("IFLA_INFO_KIND", kind), ("IFLA_INFO_DATA", nested(data)))
    state = {"flags": _IFF_UP, "change": _IFF_UP} if up else {}
    return Content(state, [("IFLA_IFNAME", name), *(each for each in optional if each[1]), ("IFLA_LINKINFO", info)])


def altname(link: int, name: str) -> Content:
    """An alternative name of an interface."""
    return Content({"index": link}, [("IFLA_PROP_LIST", nested(("IFLA_ALT_IFNAME", name)))])


def nested(*attributes: tuple[str, Any]) -> dict[str, Any]:
    """The value of an attribute that consists of others."""
    return {"attrs": list(attributes)}


def vf_changes(link: int, settings: VfSettings) -> Iterator[tuple[str, Content]]:
    """One change of a virtual function of an interface for each setting that is given, and its name."""
    for name, values in _vf_values(settings):
        value = {"vf": settings.number, **values}
        told = ", ".join(f"{key} {each}" for key, each in values.items())
        info = nested(("IFLA_VF_INFO", nested((f"IFLA_VF_{name}", value))))
        yield told, Content({"index": link}, [("IFLA_VFINFO_LIST", info)])


def _vf_values(settings: VfSettings) -> Iterator[tuple[str, dict[str, Any]]]:
    if settings.mac is not None:
        yield "MAC", {"mac": settings.mac}
    if settings.vlan is not None:
        yield "VLAN", {"vlan": settings.vlan, "qos": settings.qos or 0}
    if settings.spoofchk is not None:
        yield "SPOOFCHK", {"setting": int(settings.spoofchk)}
    if settings.trust is not None:
        yield "TRUST", {"setting": int(settings.trust)}
    if settings.link_state is not None:
        yield "LINK_STATE", {"link_state": settings.link_state}
    if settings.min_tx_rate is not None or settings.max_tx_rate is not None:
        yield "RATE", {"min_tx_rate": settings.min_tx_rate or 0, "max_tx_rate": settings.max_tx_rate or 0}


def is_automatic(message: Any) -> bool:
    """Whether the kernel makes this address by itself: link-local, or by a router's advertisement."""
    temporary = message["family"] == AF_INET6 and _flags_of(message) & _TEMPORARY
    return bool(temporary) or message.get_attr("IFA_PROTO") in _OF_THE_KERNEL


def _flags_of(message: Any) -> int:
    wide = message.get_attr("IFA_FLAGS")
    return int(message["flags"] if wide is None else wide)


def read_address(message: Any) -> Address:
    """The address of a message RTM_NEWADDR."""
    attribute = _attributes(message)
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


def address_content(link: int, address: Address) -> Content:
    """What adds an address to an interface, or removes it."""
    local = ipaddress.ip_interface(address.address)
    attributes: list[tuple[str, Any]] = [
        ("IFA_LOCAL", str(local.ip)),
        ("IFA_ADDRESS", address.peer or str(local.ip)),
        ("IFA_BROADCAST", address.broadcast),
        ("IFA_LABEL", address.label),
        ("IFA_RT_PRIORITY", address.metric),
        ("IFA_FLAGS", address.flags),
    ]
    if address.valid is not None:
        preferred = _FOREVER if address.preferred is None else address.preferred
        attributes.append(("IFA_CACHEINFO", {"ifa_valid": address.valid, "ifa_preferred": preferred}))
    fields = {
        "index": link,
        "family": _FAMILIES[local.version],
        "prefixlen": local.network.prefixlen,
        "scope": address.scope,
    }
    return Content(fields, _given(attributes))


def _given(attributes: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The attributes that are not empty."""
    return [each for each in attributes if each[1]]


def neighbour_content(link: int, neighbour: Neighbour) -> Content:
    """What adds a permanent neighbour to an interface."""
    family = _FAMILIES[ipaddress.ip_address(neighbour.address).version]
    attributes = [("NDA_DST", neighbour.address), ("NDA_LLADDR", neighbour.mac)]
    return Content({"ifindex": link, "family": family, "state": PERMANENT}, attributes)


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
    attribute = _attributes(message)
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


def route_content(link: int, route: Route) -> Content:
    """What adds a route through an interface."""
    network = ipaddress.ip_network(route.destination)
    attributes: list[tuple[str, Any]] = [
        ("RTA_DST", str(network.network_address) if network.prefixlen else ""),
        ("RTA_OIF", link),
        ("RTA_TABLE", route.table),
        ("RTA_PREFSRC", route.source),
        ("RTA_PRIORITY", route.metric),
        ("RTA_METRICS", nested(("RTAX_MTU", route.mtu)) if route.mtu else None),
    ]
    if route.gateway and ipaddress.ip_address(route.gateway).version != network.version:
        attributes.append(("RTA_VIA", {"family": AF_INET6, "addr": route.gateway}))  # IPv4 by a next hop of IPv6
    else:
        attributes.append(("RTA_GATEWAY", route.gateway))
    fields = {
        "family": _FAMILIES[network.version],
        "dst_len": network.prefixlen,
        "scope": route.scope,
        "proto": route.protocol,
        "type": route.type,
        "tos": route.tos,
        "flags": route.flags,
    }
    return Content(fields, _given(attributes))


def rule_content(rule: Rule) -> Content:
    """What adds or removes a rule; of IPv4 if it has no network."""
    networks = {
        key: ipaddress.ip_network(text) for key, text in (("src", rule.source), ("dst", rule.destination)) if text
    }
    families = {_FAMILIES[each.version] for each in networks.values()}
    lengths = {f"{key}_len": each.prefixlen for key, each in networks.items()}
    return Content(
        {"family": max(families, default=AF_INET), "action": _TO_TABLE, **lengths},
        [
            ("FRA_PRIORITY", rule.priority),
            ("FRA_TABLE", rule.table),
            *((f"FRA_{key.upper()}", str(each.network_address)) for key, each in networks.items()),
        ],
    )
