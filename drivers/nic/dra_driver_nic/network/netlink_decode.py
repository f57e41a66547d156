"""What the kernel answers about interfaces, addresses, routes and neighbours, read from the bytes of its messages.

pyroute2 reads these messages too, but of a hardware address six bytes only, and InfiniBand has 20. It takes 160 µs for
an interface, seven times as long as this, and a node has an interface for each of its pods.

Each function takes some bytes and where a message begins in them, and raises OSError if it is cut off. Source:
netlink(7), rtnetlink(7); linux/if_link.h, linux/if_addr.h, linux/rtnetlink.h and linux/neighbour.h for the numbers.
"""

from __future__ import annotations

import errno
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from socket import AF_INET, AF_INET6, inet_ntop
from typing import Final

from dra_driver_nic.network.links import MAIN_TABLE, PERMANENT, Address, Link, Neighbour, Route, VfSettings

_LENGTH: Final = struct.Struct("=I")  # at the beginning of nlmsghdr
_HEADER: Final = 16  # bytes of nlmsghdr
_ATTRIBUTE: Final = struct.Struct("=HH")  # nlattr: length and type
_TYPE: Final = 0x3FFF  # NLA_TYPE_MASK
_LINK: Final = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, changed flags
_ADDRESS: Final = struct.Struct("=BBBBI")  # ifaddrmsg: family, length of the prefix, flags, scope, index
_ROUTE: Final = struct.Struct("=BBBBBBBBI")  # rtmsg: family, lengths of destination and source, TOS, table, protocol, …
_NEIGHBOUR: Final = struct.Struct("=BxxxiHBB")  # ndmsg: family, index, state, flags, type
_HOP: Final = struct.Struct("=HBBi")  # rtnexthop: length, flags, weight, index
_LIFE: Final = struct.Struct("=II")  # ifa_cacheinfo: seconds preferred, seconds valid
# IFLA_*
_MAC, _NAME, _MTU, _PARENT, _MASTER, _STATE, _INFO, _ALIAS, _VFS = 1, 3, 4, 5, 10, 16, 18, 20, 22
_CARRIER, _PARENT_NAMESPACE, _MIN_MTU, _MAX_MTU, _NAMES, _ALTNAME = 33, 37, 50, 51, 52, 53
_INFO_KIND, _INFO_DATA, _VRF_TABLE = 1, 2, 1
_VF_MAC, _VF_VLAN, _VF_SPOOFCHK, _VF_LINK_STATE, _VF_RATE, _VF_TRUST = 1, 2, 4, 5, 6, 9
_STATES: Final = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")  # IF_OPER_*
_IFF_UP: Final = 1
_ETHERNET: Final = 6  # bytes of an address
# IFA_*
_PEER, _LOCAL, _LABEL, _BROADCAST, _CACHE, _FLAGS, _METRIC, _MADE_BY = 1, 2, 3, 4, 6, 8, 9, 11
_FLAGS_OF_USERS: Final = 0x02 | 0x10 | 0x100 | 0x200 | 0x400
"""Flags that a user sets: NODAD, HOMEADDRESS, MANAGETEMPADDR, NOPREFIXROUTE, MCAUTOJOIN."""
_TEMPORARY: Final = 0x01  # IFA_F_TEMPORARY of IPv6
_OF_THE_KERNEL: Final = frozenset({1, 2, 3})  # IFAPROT_*: of the loopback, of router advertisements, link-local
_FOREVER: Final = 0xFFFFFFFF
# RTA_*, RTAX_* and RTN_*
_TO, _OUT, _GATEWAY, _PRIORITY, _SOURCE, _METRICS, _HOPS, _TABLE, _VIA = 1, 4, 5, 6, 7, 8, 9, 15, 18
_METRIC_MTU, _UNICAST = 2, 1
_ONLINK: Final = 0x04  # RTNH_F_ONLINK, the only flag of a next hop that a user sets
_CLONED: Final = 0x200  # RTM_F_CLONED: an entry of a cache
_NEIGHBOUR_IP, _NEIGHBOUR_MAC = 1, 2  # NDA_*

_Attributes = Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """A route as the kernel has it.

    route: what it says.
    link: the index of the interface through which it goes; 0 if it has several next hops, or none.
    hops: the indexes of the interfaces of several next hops.
    cached: whether it is an entry of a cache.
    """

    route: Route
    link: int
    hops: tuple[int, ...]
    cached: bool

    @property
    def is_default(self) -> bool:
        """Whether this is a default route of the node itself; one of another table is for policy routing."""
        is_default = self.route.destination in {"0.0.0.0/0", "::/0"}
        return is_default and self.route.type == _UNICAST and self.route.table == MAIN_TABLE


def read_link(data: bytes, begin: int) -> Link:
    """Read the interface of a message RTM_NEWLINK."""
    _, arp_type, index, flags, _ = _LINK.unpack_from(data, begin + _HEADER)
    attributes = _attributes(data, begin, _LINK)
    info = dict(pairs(attributes.get(_INFO, b"")))
    kind, state = _text(info.get(_INFO_KIND)), _number(attributes.get(_STATE))
    return Link(
        index=index,
        name=_text(attributes.get(_NAME)),
        kind=kind,
        mac=_mac(attributes.get(_MAC)),
        mtu=_number(attributes.get(_MTU)),
        min_mtu=_number(attributes.get(_MIN_MTU)),
        max_mtu=_number(attributes.get(_MAX_MTU)),
        up=bool(flags & _IFF_UP),
        state=_STATES[state] if state < len(_STATES) else "unknown",
        carrier=bool(_number(attributes.get(_CARRIER))),
        arp_type=arp_type,
        alias=_text(attributes.get(_ALIAS)),
        altnames=tuple(sorted(_text(name) for kind, name in pairs(attributes.get(_NAMES, b"")) if kind == _ALTNAME)),
        parent=0 if _PARENT_NAMESPACE in attributes else _number(attributes.get(_PARENT)),
        master=_number(attributes.get(_MASTER)),
        vfs=tuple(_read_vf(vf) for _, vf in pairs(attributes.get(_VFS, b""))),
        table=_number(dict(pairs(info.get(_INFO_DATA, b""))).get(_VRF_TABLE)) if kind == "vrf" else 0,
    )


def _read_vf(data: bytes) -> VfSettings:
    """Read the settings of a virtual function. Each attribute begins with its number; a card that has none says -1."""
    attributes = dict(pairs(data))
    mac = attributes.get(_VF_MAC, b"")

    def value(kind: int, place: int = 1) -> int | None:
        number = _number(attributes[kind][4 * place : 4 * place + 4]) if kind in attributes else _FOREVER
        return None if number == _FOREVER else number

    spoofchk, trust = value(_VF_SPOOFCHK), value(_VF_TRUST)
    return VfSettings(
        number=_number(next(iter(attributes.values()), b"")[:4]),
        mac=_mac(mac[4 : 4 + _ETHERNET]) or None,
        vlan=value(_VF_VLAN),
        qos=value(_VF_VLAN, 2),
        spoofchk=None if spoofchk is None else bool(spoofchk),
        trust=None if trust is None else bool(trust),
        min_tx_rate=value(_VF_RATE),
        max_tx_rate=value(_VF_RATE, 2),
        link_state=value(_VF_LINK_STATE),
    )


def read_address(data: bytes, begin: int) -> tuple[int, Address] | None:
    """Read the index of an interface and its address from a message RTM_NEWADDR.

    None for an address that the kernel makes by itself: link-local, temporary, or by a router's advertisement.
    """
    family, prefix, few_flags, scope, link = _ADDRESS.unpack_from(data, begin + _HEADER)
    attributes = _attributes(data, begin, _ADDRESS)
    flags = _number(attributes[_FLAGS]) if _FLAGS in attributes else few_flags
    if (family == AF_INET6 and flags & _TEMPORARY) or _number(attributes.get(_MADE_BY)) in _OF_THE_KERNEL:
        return None
    peer = _ip(family, attributes.get(_PEER))
    local = _ip(family, attributes.get(_LOCAL)) or peer
    preferred, valid = _LIFE.unpack_from(attributes[_CACHE]) if _CACHE in attributes else (_FOREVER, _FOREVER)
    return link, Address(
        address=f"{local}/{prefix}",
        peer="" if peer == local else peer,
        broadcast=_ip(family, attributes.get(_BROADCAST)),
        label=_text(attributes.get(_LABEL)),
        scope=scope,
        flags=flags & _FLAGS_OF_USERS,
        metric=_number(attributes.get(_METRIC)),
        valid=None if valid == _FOREVER else valid,
        preferred=None if preferred == _FOREVER else preferred,
    )


def read_route(data: bytes, begin: int) -> RouteEntry:
    """Read the route of a message RTM_NEWROUTE."""
    family, length, _, tos, table, protocol, scope, kind, flags = _ROUTE.unpack_from(data, begin + _HEADER)
    attributes = _attributes(data, begin, _ROUTE)
    to = _ip(family, attributes.get(_TO)) or ("0.0.0.0" if family == AF_INET else "::")  # noqa: S104 (the default route)
    via = attributes.get(_VIA, b"")
    route = Route(
        destination=f"{to}/{length}",
        gateway=_ip(family, attributes.get(_GATEWAY)) or (_ip(_number(via[:2]), via[2:]) if via else ""),
        source=_ip(family, attributes.get(_SOURCE)),
        scope=scope,
        table=_number(attributes.get(_TABLE)) or table,
        metric=_number(attributes.get(_PRIORITY)),
        protocol=protocol,
        type=kind,
        tos=tos,
        flags=flags & _ONLINK,
        mtu=_number(dict(pairs(attributes.get(_METRICS, b""))).get(_METRIC_MTU)),
    )
    hops = tuple(_hops(attributes.get(_HOPS, b"")))
    return RouteEntry(route, _number(attributes.get(_OUT)), hops, cached=bool(flags & _CLONED))


def _hops(data: bytes) -> Iterator[int]:
    begin = 0
    while begin + _HOP.size <= len(data):
        length, _, _, link = _HOP.unpack_from(data, begin)
        yield link
        begin += max(length, _HOP.size)


def read_neighbour(data: bytes, begin: int) -> tuple[int, Neighbour] | None:
    """Read the index of an interface and its neighbour from a message RTM_NEWNEIGH; None if that is not permanent."""
    family, link, state, _, _ = _NEIGHBOUR.unpack_from(data, begin + _HEADER)
    if not state & PERMANENT:
        return None
    attributes = _attributes(data, begin, _NEIGHBOUR)
    mac = _mac(attributes.get(_NEIGHBOUR_MAC))
    return (link, Neighbour(address=_ip(family, attributes.get(_NEIGHBOUR_IP)), mac=mac)) if mac else None


def _attributes(data: bytes, begin: int, header: struct.Struct) -> _Attributes:
    """Return the attributes of a message, by type, after the header of its kind."""
    (length,) = _LENGTH.unpack_from(data, begin)
    return dict(pairs(data[begin + _HEADER + header.size : begin + length]))


def pairs(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and value of each attribute in some bytes."""
    begin, end = 0, len(data)
    while begin + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, begin)
        if length < _ATTRIBUTE.size or begin + length > end:
            raise OSError(errno.EBADMSG, "the kernel's answer is cut off")
        yield kind & _TYPE, data[begin + _ATTRIBUTE.size : begin + length]
        begin += (length + 3) & ~3  # attributes are aligned to four bytes


def _number(value: bytes | None) -> int:
    return int.from_bytes(value or b"", sys.byteorder)


def _text(value: bytes | None) -> str:
    return (value or b"").partition(b"\0")[0].decode(errors="replace")


def _mac(value: bytes | None) -> str:
    return (value or b"").hex(":")


def _ip(family: int, value: bytes | None) -> str:
    return inet_ntop(family, value) if value else ""
