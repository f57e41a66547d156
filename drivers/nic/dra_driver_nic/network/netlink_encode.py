"""What is asked of the kernel by netlink: the contents of messages about interfaces, addresses, routes and rules.

pyroute2 writes these messages: a mapping of the fields of the header, with attributes by name. Source: rtnetlink(7);
linux/if_addr.h, linux/if_link.h and linux/rtnetlink.h for the numbers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from socket import AF_INET, AF_INET6
from typing import Any, Final

from dra_driver_nic.network.links import PERMANENT, Address, Neighbour, Route, RoutingRule, VfSettings
from dra_driver_nic.network.netlink import Content

_FAMILIES: Final = {4: AF_INET, 6: AF_INET6}
_IFF_UP: Final = 1
_FOREVER: Final = 0xFFFFFFFF
_TO_TABLE: Final = 1  # FR_ACT_TO_TBL


def link_change(
    link: int, *, name: str = "", mtu: int = 0, mac: str = "", up: bool | None = None, master: int | None = None
) -> Content:
    """Change an interface: only what is given. `master` is 0 for none."""
    attributes: list[tuple[str, Any]] = [("IFLA_IFNAME", name), ("IFLA_MTU", mtu), ("IFLA_ADDRESS", mac)]
    changes = given(attributes)
    if master is not None:
        changes.append(("IFLA_MASTER", master))
    state = {} if up is None else {"flags": int(up), "change": _IFF_UP}
    return Content({"index": link, **state}, changes)


def new_link(
    name: str, kind: str, data: tuple[str, Any], *, parent: int = 0, mac: str = "", up: bool = False
) -> Content:
    """Add an interface in software.

    data: what only its kind has, as an attribute of the kernel.
    parent: the index of the interface on which it stands; 0 for none.
    """
    optional: list[tuple[str, Any]] = [("IFLA_LINK", parent), ("IFLA_ADDRESS", mac)]
    info = nested(("IFLA_INFO_KIND", kind), ("IFLA_INFO_DATA", nested(data)))
    state = {"flags": _IFF_UP, "change": _IFF_UP} if up else {}
    return Content(state, [("IFLA_IFNAME", name), *given(optional), ("IFLA_LINKINFO", info)])


def altname(link: int, name: str) -> Content:
    """Give or take an alternative name of an interface."""
    return Content({"index": link}, [("IFLA_PROP_LIST", nested(("IFLA_ALT_IFNAME", name)))])


def nested(*attributes: tuple[str, Any]) -> dict[str, Any]:
    """Return the value of an attribute that consists of others."""
    return {"attrs": list(attributes)}


def given(attributes: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the attributes that are not empty."""
    return [(name, value) for name, value in attributes if value]


def vf_changes(link: int, settings: VfSettings) -> Iterator[tuple[str, Content]]:
    """Yield the name of each setting of a virtual function that is given, and the change of an interface for it."""
    for name, values in _vf_values(settings):
        value = {"vf": settings.number, **values}
        what = ", ".join(f"{key} {setting}" for key, setting in values.items())
        info = nested(("IFLA_VF_INFO", nested((f"IFLA_VF_{name}", value))))
        yield what, Content({"index": link}, [("IFLA_VFINFO_LIST", info)])


def _vf_values(settings: VfSettings) -> Iterator[tuple[str, dict[str, Any]]]:
    if settings.mac is not None:
        yield "MAC", {"mac": settings.mac}
    if settings.vlan is not None:
        yield "VLAN", {"vlan": settings.vlan, "qos": settings.qos or 0}
    if settings.spoofchk is not None:
        yield "SPOOFCHK", {"spoofchk": int(settings.spoofchk)}
    if settings.trust is not None:
        yield "TRUST", {"trust": int(settings.trust)}
    if settings.link_state is not None:
        yield "LINK_STATE", {"link_state": settings.link_state}
    if settings.min_tx_rate is not None or settings.max_tx_rate is not None:
        yield "RATE", {"min_tx_rate": settings.min_tx_rate or 0, "max_tx_rate": settings.max_tx_rate or 0}


def address_content(link: int, address: Address) -> Content:
    """Add an address to an interface, or remove it."""
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
    return Content(fields, given(attributes))


def neighbour_content(link: int, neighbour: Neighbour) -> Content:
    """Add a permanent neighbour to an interface."""
    family = _FAMILIES[ipaddress.ip_address(neighbour.address).version]
    attributes = [("NDA_DST", neighbour.address), ("NDA_LLADDR", neighbour.mac)]
    return Content({"ifindex": link, "family": family, "state": PERMANENT}, attributes)


def route_content(link: int, route: Route) -> Content:
    """Add a route through an interface."""
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
    return Content(fields, given(attributes))


def rule_content(rule: RoutingRule) -> Content:
    """Add or remove a rule; of IPv4 if it has no network."""
    networks = {
        key: ipaddress.ip_network(text) for key, text in (("src", rule.source), ("dst", rule.destination)) if text
    }
    families = {_FAMILIES[network.version] for network in networks.values()}
    lengths = {f"{key}_len": network.prefixlen for key, network in networks.items()}
    return Content(
        {"family": max(families, default=AF_INET), "action": _TO_TABLE, **lengths},
        [
            ("FRA_PRIORITY", rule.priority),
            ("FRA_TABLE", rule.table),
            *((f"FRA_{key.upper()}", str(network.network_address)) for key, network in networks.items()),
        ],
    )
