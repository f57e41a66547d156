"""IP addresses, networks, and URLs, which are read as Go's net/url reads them.

Source: Kubernetes apiserver, library/ip.go, cidr.go and urls.go (1.36); net/url of Go 1.26.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Any, Final

from dra_sdk.cel.comparison import Count
from dra_sdk.cel.library.overloads import STRING as STRING_COST
from dra_sdk.cel.library.overloads import (
    CallEstimate,
    CallSite,
    Cost,
    Overload,
    Range,
    accepted,
    exactly,
    method,
    parsed,
    walk,
)
from dra_sdk.cel.types import BOOL, CIDR, INT, IP, STRING, URL, list_of, map_of
from dra_sdk.cel.values import Address, Cidr, Url, size

_BYTES: Final = Range(4, 16)


_LETTERS: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~")
#: The bytes that need no escape in each part of a URL.
_HOST: Final = _LETTERS | frozenset(b"!$&'()*+,;=:[]<>\"")
_PATH: Final = _LETTERS | frozenset(b"$&+,/:;=@")
_PATH_GIVEN: Final = _PATH | frozenset(b"!'()*[]%")
_USER: Final = _LETTERS | frozenset(b"$&+,;=")
_FRAGMENT: Final = _LETTERS | frozenset(b"$&+,/:;=?@!()*")
_FRAGMENT_GIVEN: Final = _FRAGMENT | frozenset(b"'[]%")
_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_USERINFO: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*", re.ASCII)
_PORT: Final = re.compile(r"(?::[0-9]*)?", re.ASCII)
_ESCAPE: Final = re.compile(rb"%([0-9a-fA-F]{2})?")
_FIRST_NOT_ASCII: Final = 0x80


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
    ip = parse_ip(address)
    if int(prefix) > ip.max_prefixlen:
        raise ValueError(f"{text!r} is no network address: the prefix is longer than {ip.max_prefixlen}")
    return Cidr(ip, int(prefix))


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


def _addresses() -> Iterator[Overload]:
    yield Overload("ip", (STRING,), IP, parsed(parse_ip), walk())
    yield Overload("isIP", (STRING,), BOOL, accepted(parse_ip), walk())
    canonical = parsed(lambda text: str(parse_ip(text)) == text)
    yield Overload("ip.isCanonical", (STRING,), BOOL, canonical, walk(0, 2 * STRING_COST))
    yield method("family", (IP,), INT, lambda address: address.version)
    yield method("isUnspecified", (IP,), BOOL, lambda address: address.is_unspecified)
    yield method("isLoopback", (IP,), BOOL, lambda address: address.is_loopback)
    yield method("isLinkLocalMulticast", (IP,), BOOL, _is_local_multicast)
    yield method("isLinkLocalUnicast", (IP,), BOOL, lambda address: address.is_link_local)
    yield method("isGlobalUnicast", (IP,), BOOL, _is_global)
    yield Overload("cidr", (STRING,), CIDR, parsed(_cidr), walk())
    yield Overload("isCIDR", (STRING,), BOOL, accepted(_cidr), walk())
    yield method("ip", (CIDR,), IP, lambda network: network.address)
    yield method("masked", (CIDR,), CIDR, _masked)
    yield method("prefixLength", (CIDR,), INT, lambda network: network.prefix)
    yield method("containsIP", (CIDR, STRING), BOOL, _contains_ip, _containing(whole=False, text=True))
    yield method("containsIP", (CIDR, IP), BOOL, _contains_ip, _containing(whole=False, text=False))
    yield method("containsCIDR", (CIDR, STRING), BOOL, _contains_cidr, _containing(whole=True, text=True))
    yield method("containsCIDR", (CIDR, CIDR), BOOL, _contains_cidr, _containing(whole=True, text=False))


def parse_request_uri(text: str) -> None:
    """Raise ValueError if a text is no absolute URL and no absolute path (ParseRequestURI)."""
    if not text:
        raise ValueError(f'parse "{text}": empty url')
    _parts(text, via_request=True)


def parse_url(text: str) -> Url:
    """Return the URL that a text is; ValueError if it is none that `url()` accepts."""
    parse_request_uri(text)
    before, _, fragment = text.partition("#")
    return _parts(before, via_request=False, fragment=fragment)


def _parts(text: str, *, via_request: bool, fragment: str = "") -> Url:
    def wrong(problem: str) -> ValueError:
        return ValueError(f'parse "{text}": {problem}')

    if _CONTROL.search(text):
        raise wrong("net/url: invalid control character in URL")
    if text == "*":
        return Url("", "", "*", "", "*")
    match = _SCHEME.match(text)
    if text.startswith(":"):
        raise wrong("missing protocol scheme")
    scheme, rest = (match[1].lower(), text[match.end() :]) if match else ("", text)
    forced = rest.endswith("?") and rest.count("?") == 1
    rest, _, query = rest.partition("?")
    ending = f"?{query}" if query or forced else ""
    ending += f"#{_shown(fragment, _FRAGMENT, _FRAGMENT_GIVEN, wrong)}" if fragment else ""
    if not rest.startswith("/"):
        if scheme:
            return Url(scheme, "", "", query, f"{scheme}:{rest}{ending}")
        if via_request:
            raise wrong("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise wrong("first path segment in URL cannot contain colon")
    user, host, authority = "", "", False
    if rest.startswith("//") and (scheme or (not via_request and not rest.startswith("///"))):
        place, slash, path = rest[2:].partition("/")
        authority, rest = True, slash + path
        user, host = _authority(scheme, place, wrong)
    path = _shown(rest, _PATH, _PATH_GIVEN, wrong)
    slashes = "//" if (authority or host) and (host or path or user) and (scheme or host or user) else ""
    start = f"{scheme}:" if scheme else ""
    return Url(scheme, host, path, query, f"{start}{slashes}{user}{_escaped(host.encode(), _HOST)}{path}{ending}")


Wrong = Callable[[str], ValueError]


def _authority(scheme: str, text: str, wrong: Wrong) -> tuple[str, str]:
    """Return user information, escaped and with its `@`, and the host with its port."""
    info, at, place = text.rpartition("@")
    host = _host(scheme, place, wrong)
    if not at:
        return "", host
    if not _USERINFO.fullmatch(info):
        raise wrong("net/url: invalid userinfo")
    name, colon, password = info.partition(":")
    shown = [_escaped(_unescaped(part, wrong), _USER) for part in (name, password)]
    return f"{shown[0]}{colon}{shown[1]}@", host


def _host(scheme: str, text: str, wrong: Wrong) -> str:
    if text.rfind("[") > 0:
        raise wrong("invalid IP-literal")
    if text.startswith("["):
        name, bracket, port = text[1:].rpartition("]")
        if not bracket:
            raise wrong("missing ']' in host")
        _check_port(port, wrong)
        address, zone, rest = name.partition("%25")
        plain = _unescaped_host(address, wrong) + (_unescaped(zone + rest, wrong).decode(errors="replace"))
        if not _is_ipv6(plain):
            raise wrong("invalid IP-literal")
        return f"[{plain}]{port}"
    first, last = text.find(":"), text.rfind(":")
    if first >= 0:
        _check_port(text[first if scheme in {"http", "https"} else last :], wrong)
    return _unescaped_host(text, wrong)


def _is_ipv6(text: str) -> bool:
    address, percent, zone = text.partition("%")
    return ":" in address and accepted(lambda part: parse_ip(part, mapped=True))(address) and bool(zone or not percent)


def _check_port(text: str, wrong: Wrong) -> None:
    if not _PORT.fullmatch(text):
        raise wrong(f'invalid port "{text}" after host')


def _unescaped_host(text: str, wrong: Wrong) -> str:
    raw = text.encode()
    for match in _ESCAPE.finditer(raw):
        if match[1] and int(match[1], 16) < _FIRST_NOT_ASCII and match[1] != b"25":
            raise wrong(f'invalid URL escape "{match[0].decode()}"')
    for byte in raw:
        if byte < _FIRST_NOT_ASCII and byte not in _HOST and byte != ord("%"):
            raise wrong(f'invalid character "{chr(byte)}" in host name')
    return _unescaped(text, wrong).decode(errors="replace")


def _unescaped(text: str, wrong: Wrong) -> bytes:
    raw = text.encode()
    for match in _ESCAPE.finditer(raw):
        if match[1] is None:
            raise wrong(f'invalid URL escape "{raw[match.start() : match.start() + 3].decode(errors="replace")}"')
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), raw)


def _escaped(raw: bytes, plain: frozenset[int]) -> str:
    return "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in raw)


def _shown(text: str, plain: frozenset[int], given: frozenset[int], wrong: Wrong) -> str:
    """Return a path or fragment with escapes: as it was given where that is valid (EscapedPath)."""
    raw = _unescaped(text, wrong)
    if all(byte in given for byte in text.encode()) or text == "*":
        return text
    return _escaped(raw, plain)


def _query(count: Count, url: Url) -> dict[str, list[str]]:
    """Return the parameters of a query; like Go, leave out the ones that are wrong."""
    count(len(url.query))
    parameters: dict[str, list[str]] = {}
    for part in url.query.split("&"):
        name, _, value = part.partition("=")
        try:
            key, text = (_unescaped(part.replace("+", " "), ValueError) for part in (name, value))
        except ValueError:
            continue
        if part and ";" not in part:
            parameters.setdefault(key.decode(errors="replace"), []).append(text.decode(errors="replace"))
    return parameters


def _host_and_port(url: Url) -> tuple[str, str]:
    host, colon, port = url.host.rpartition(":")
    if not colon or not _PORT.fullmatch(f":{port}"):
        host, port = url.host, ""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, port


def _parsed_url(text: str) -> Url:
    try:
        return parse_url(text)
    except ValueError as error:
        raise ValueError(f"URL parse error during conversion from string: {error}") from None


def _urls() -> Iterator[Overload]:
    yield Overload("url", (STRING,), URL, parsed(_parsed_url), walk(keeps_size=True))
    yield Overload("isURL", (STRING,), BOOL, accepted(parse_request_uri))
    getters: dict[str, Callable[[Url], Any]] = {
        "getScheme": lambda url: url.scheme,
        "getHost": lambda url: url.host,
        "getHostname": lambda url: _host_and_port(url)[0],
        "getPort": lambda url: _host_and_port(url)[1],
        "getEscapedPath": lambda url: url.path,
    }
    for name, run in getters.items():
        yield method(name, (URL,), STRING, run)
    yield method("getQuery", (URL,), map_of(STRING, list_of(STRING)), _query, counted=True)


def declared() -> Iterator[Overload]:
    """Declare `ip()`, `cidr()`, `url()`, and the methods of addresses, networks and URLs."""
    yield from _addresses()
    yield from _urls()
