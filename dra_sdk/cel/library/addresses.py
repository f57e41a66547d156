"""IP addresses and networks. Source: Kubernetes apiserver, library/ip.go and cidr.go (1.36)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any, Final

from dra_sdk.cel.library.overloads import STRING as STRING_COST
from dra_sdk.cel.library.overloads import (
    CallEstimate,
    CallSite,
    Cost,
    Overload,
    Range,
    accepted,
    exactly,
    function,
    method,
    parsed,
    walk,
)
from dra_sdk.cel.types import BOOL, CIDR, INT, IP, STRING
from dra_sdk.cel.values import Address, Cidr, size

_BYTES: Final = Range(4, 16)


def parse_ip(text: str, *, mapped: bool = False) -> Address:
    """Return the address that a text is; ValueError if it is none, has a zone, or (unless `mapped`) maps IPv4."""
    address = ipaddress.ip_address(text)
    if "%" in text or (address.version == 6 and address.ipv4_mapped and not mapped):  # noqa: PLR2004 (IPv6)
        raise ValueError(f"IP address {text!r} with a zone, or mapped from IPv4, is not allowed")
    return address


def _cidr(text: str) -> Cidr:
    address, slash, prefix = text.partition("/")
    if not slash or not (prefix.isascii() and prefix.isdigit()) or (prefix[0] == "0" and prefix != "0"):
        raise ValueError(f"{text!r} is no network address: want an address, / and the length of the prefix")
    found = parse_ip(address)
    if int(prefix) > found.max_prefixlen:
        raise ValueError(f"{text!r} is no network address: the prefix is longer than {found.max_prefixlen}")
    return Cidr(found, int(prefix))


def _masked(network: Cidr) -> Cidr:
    whole = ipaddress.ip_network((network.address, network.prefix), strict=False)
    return Cidr(whole.network_address, network.prefix)


def _contains_ip(network: Cidr, other: Address | str) -> bool:
    address = parsed(parse_ip)(other) if isinstance(other, str) else other
    return address in ipaddress.ip_network((network.address, network.prefix), strict=False)


def _contains_cidr(network: Cidr, other: Cidr | str) -> bool:
    inner = parsed(_cidr)(other) if isinstance(other, str) else other
    return network.prefix <= inner.prefix and _contains_ip(network, inner.address)


def _is_global(address: Address) -> bool:
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not special and str(address) != "255.255.255.255"


def _is_local_multicast(address: Address) -> bool:
    first = address.packed
    return first[:3] == b"\xe0\0\0" if address.version == 4 else first[0] == 0xFF and first[1] & 15 == 2  # noqa: PLR2004


def _containing(*, whole: bool, text: bool) -> Cost:
    """Return the cost of asking whether a network contains an address, or with `whole` another network."""

    def estimate(site: CallSite) -> CallEstimate:
        cost = _BYTES.plus(_BYTES).scaled(STRING_COST)
        if whole:
            cost = cost.plus(_BYTES.scaled(STRING_COST)).plus(exactly(1))
        return CallEstimate(cost.plus(site.size(1).scaled(STRING_COST)) if text else cost)

    def actual(args: Sequence[Any], _result: Any) -> int:
        network, other = size(args[0]), size(args[1])
        cost = ceil(2 * network * STRING_COST) + (ceil(network * STRING_COST) + 1 if whole else 0)
        return cost + (ceil(other * STRING_COST) if text else 0)

    return Cost(estimate, actual)


def declared() -> Iterator[Overload]:
    """Declare `ip()`, `cidr()` and the methods of addresses and networks."""
    yield function("ip", (STRING,), IP, parsed(parse_ip), walk())
    yield function("isIP", (STRING,), BOOL, accepted(parse_ip), walk())
    canonical = parsed(lambda text: str(parse_ip(text)) == text)
    yield function("ip.isCanonical", (STRING,), BOOL, canonical, walk(0, 2 * STRING_COST))
    yield method("family", (IP,), INT, lambda address: address.version)
    yield method("isUnspecified", (IP,), BOOL, lambda address: address.is_unspecified)
    yield method("isLoopback", (IP,), BOOL, lambda address: address.is_loopback)
    yield method("isLinkLocalMulticast", (IP,), BOOL, _is_local_multicast)
    yield method("isLinkLocalUnicast", (IP,), BOOL, lambda address: address.is_link_local)
    yield method("isGlobalUnicast", (IP,), BOOL, _is_global)
    yield function("cidr", (STRING,), CIDR, parsed(_cidr), walk())
    yield function("isCIDR", (STRING,), BOOL, accepted(_cidr), walk())
    yield method("ip", (CIDR,), IP, lambda network: network.address)
    yield method("masked", (CIDR,), CIDR, _masked)
    yield method("prefixLength", (CIDR,), INT, lambda network: network.prefix)
    yield method("containsIP", (CIDR, STRING), BOOL, _contains_ip, _containing(whole=False, text=True))
    yield method("containsIP", (CIDR, IP), BOOL, _contains_ip, _containing(whole=False, text=False))
    yield method("containsCIDR", (CIDR, STRING), BOOL, _contains_cidr, _containing(whole=True, text=True))
    yield method("containsCIDR", (CIDR, CIDR), BOOL, _contains_cidr, _containing(whole=True, text=False))
