"""Quantities, semantic versions and network addresses, and optionals.

Source: Kubernetes apiserver library/quantity.go, semverlib.go, ip.go and cidr.go (1.36); cel-go's optional types.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Any, Final

from dra_sdk.cel.cost import STRING as PER_CHARACTER
from dra_sdk.cel.cost import Price, Quote, Range, Site, exactly, walk
from dra_sdk.cel.library.functions import Overload, function, method
from dra_sdk.cel.types import BOOL, CIDR, DOUBLE, INT, IP, QUANTITY, SEMVER, STRING, Type, list_of, optional_of, param
from dra_sdk.cel.values import (
    INT64,
    MISSING,
    NONE,
    Address,
    Cidr,
    Computed,
    EvaluationError,
    Optional,
    Semver,
    size,
)
from dra_sdk.model.quantity import Quantity

_BYTES: Final = Range(4, 16)


def _parsed(parse: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        try:
            return parse(*args)
        except ValueError as error:
            raise EvaluationError(str(error)) from None

    return run


def _accepted(parse: Callable[..., Any]) -> Callable[..., bool]:
    def run(*args: Any) -> bool:
        try:
            parse(*args)
        except ValueError:
            return False
        return True

    return run


def _order(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _ordered(kind: Type) -> Iterator[Overload]:
    yield method("isGreaterThan", (kind, kind), BOOL, lambda left, right: left > right)
    yield method("isLessThan", (kind, kind), BOOL, lambda left, right: left < right)
    yield method("compareTo", (kind, kind), INT, _order)


def _is_integer(quantity: Quantity) -> bool:
    return quantity.value.denominator == 1 and abs(quantity.value) <= INT64


def _as_integer(quantity: Quantity) -> int:
    if not _is_integer(quantity):
        raise EvaluationError("cannot convert value to integer")
    return int(quantity)


def _sum(left: Quantity, right: Quantity | int) -> Quantity:
    return Computed.of(left.value + Quantity(right).value)


def _difference(left: Quantity, right: Quantity | int) -> Quantity:
    return Computed.of(left.value - Quantity(right).value)


def quantities() -> Iterator[Overload]:
    """`quantity()` and what can be done with one."""
    yield function("quantity", (STRING,), QUANTITY, _parsed(Quantity), walk())
    yield function("isQuantity", (STRING,), BOOL, _accepted(Quantity), walk())
    yield function("sign", (QUANTITY,), INT, lambda quantity: _order(quantity.value, 0))
    yield from _ordered(QUANTITY)
    yield method("asApproximateFloat", (QUANTITY,), DOUBLE, lambda quantity: float(quantity.value))
    yield method("asInteger", (QUANTITY,), INT, _as_integer)
    yield method("isInteger", (QUANTITY,), BOOL, _is_integer)
    for other in (QUANTITY, INT):
        yield method("add", (QUANTITY, other), QUANTITY, _sum)
        yield method("sub", (QUANTITY, other), QUANTITY, _difference)


def _semver(text: str, normalize: bool = False) -> Semver:
    return Semver(_normalized(text) if normalize else text)


def _normalized(text: str) -> str:
    """A version without a leading `v` and leading zeros, and with all three numbers."""
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped[:1].isdigit() else "0" + stripped
    if len(parts) < 3:  # noqa: PLR2004 (major, minor, patch)
        if any(each in parts[-1] for each in "+-"):
            raise ValueError(f"{text!r} is not a semantic version: a short one cannot have a pre-release or build part")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def versions() -> Iterator[Overload]:
    """`semver()` and what can be done with one."""
    for params in ((STRING,), (STRING, BOOL)):
        yield function("semver", params, SEMVER, _parsed(_semver), walk())
        yield function("isSemver", params, BOOL, _accepted(_semver), walk())
    yield from _ordered(SEMVER)
    yield method("major", (SEMVER,), INT, lambda version: version.major)
    yield method("minor", (SEMVER,), INT, lambda version: version.minor)
    yield method("patch", (SEMVER,), INT, lambda version: version.patch)


def _ip(text: str) -> Address:
    address = ipaddress.ip_address(text)
    if "%" in text or (address.version == 6 and address.ipv4_mapped):  # noqa: PLR2004 (IPv6)
        raise ValueError(f"IP address {text!r} with a zone, or mapped from IPv4, is not allowed")
    return address


def _cidr(text: str) -> Cidr:
    address, slash, prefix = text.partition("/")
    if not slash or not (prefix.isascii() and prefix.isdigit()) or (prefix[0] == "0" and prefix != "0"):
        raise ValueError(f"{text!r} is no network address: want an address, / and the length of the prefix")
    parsed = _ip(address)
    if int(prefix) > parsed.max_prefixlen:
        raise ValueError(f"{text!r} is no network address: the prefix is longer than {parsed.max_prefixlen}")
    return Cidr(parsed, int(prefix))


def _masked(network: Cidr) -> Cidr:
    whole = ipaddress.ip_network((network.address, network.prefix), strict=False)
    return Cidr(whole.network_address, network.prefix)


def _contains_ip(network: Cidr, other: Address | str) -> bool:
    address = _parsed(_ip)(other) if isinstance(other, str) else other
    return address in ipaddress.ip_network((network.address, network.prefix), strict=False)


def _contains_cidr(network: Cidr, other: Cidr | str) -> bool:
    inner = _parsed(_cidr)(other) if isinstance(other, str) else other
    return network.prefix <= inner.prefix and _contains_ip(network, inner.address)


def _is_global(address: Address) -> bool:
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not special and str(address) != "255.255.255.255"


def _is_local_multicast(address: Address) -> bool:
    first = address.packed
    return first[:3] == b"\xe0\0\0" if address.version == 4 else first[0] == 0xFF and first[1] & 15 == 2  # noqa: PLR2004


def _containing(*, whole: bool, text: bool) -> Price:
    """The price of asking whether a network holds an address, or (`whole`) another network."""

    def estimate(site: Site) -> Quote:
        cost = _BYTES.plus(_BYTES).scaled(PER_CHARACTER)
        if whole:
            cost = cost.plus(_BYTES.scaled(PER_CHARACTER)).plus(exactly(1))
        return Quote(cost.plus(site.size(1).scaled(PER_CHARACTER)) if text else cost)

    def actual(args: Sequence[Any], _result: Any) -> int:
        network, other = size(args[0]), size(args[1])
        cost = ceil(2 * network * PER_CHARACTER) + (ceil(network * PER_CHARACTER) + 1 if whole else 0)
        return cost + (ceil(other * PER_CHARACTER) if text else 0)

    return Price(estimate, actual)


def networks() -> Iterator[Overload]:
    """`ip()`, `cidr()` and what can be done with them."""
    yield function("ip", (STRING,), IP, _parsed(_ip), walk())
    yield function("isIP", (STRING,), BOOL, _accepted(_ip), walk())
    canonical = _parsed(lambda text: str(_ip(text)) == text)
    yield function("ip.isCanonical", (STRING,), BOOL, canonical, walk(0, 2 * PER_CHARACTER))
    yield method("family", (IP,), INT, lambda address: address.version)
    yield method("isUnspecified", (IP,), BOOL, lambda address: address.is_unspecified)
    yield method("isLoopback", (IP,), BOOL, lambda address: address.is_loopback)
    yield method("isLinkLocalMulticast", (IP,), BOOL, _is_local_multicast)
    yield method("isLinkLocalUnicast", (IP,), BOOL, lambda address: address.is_link_local)
    yield method("isGlobalUnicast", (IP,), BOOL, _is_global)
    yield function("cidr", (STRING,), CIDR, _parsed(_cidr), walk())
    yield function("isCIDR", (STRING,), BOOL, _accepted(_cidr), walk())
    yield method("ip", (CIDR,), IP, lambda network: network.address)
    yield method("masked", (CIDR,), CIDR, _masked)
    yield method("prefixLength", (CIDR,), INT, lambda network: network.prefix)
    yield method("containsIP", (CIDR, STRING), BOOL, _contains_ip, _containing(whole=False, text=True))
    yield method("containsIP", (CIDR, IP), BOOL, _contains_ip, _containing(whole=False, text=False))
    yield method("containsCIDR", (CIDR, STRING), BOOL, _contains_cidr, _containing(whole=True, text=True))
    yield method("containsCIDR", (CIDR, CIDR), BOOL, _contains_cidr, _containing(whole=True, text=False))


def _value(optional: Optional) -> Any:
    if optional.value is MISSING:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def _non_zero(value: Any) -> Optional:
    return Optional(value) if value or isinstance(value, Quantity | Semver | Address | Cidr) else NONE


def _unwrapped(items: Sequence[Optional]) -> list[Any]:
    return [each.value for each in items if each.value is not MISSING]


def optionals() -> Iterator[Overload]:
    """`optional.of()` and what can be done with one."""
    value = param("V")
    optional, items = optional_of(value), list_of(value)
    yield function("optional.of", (value,), optional, Optional)
    yield function("optional.ofNonZeroValue", (value,), optional, _non_zero)
    yield function("optional.none", (), optional, lambda: NONE)
    yield function("optional.unwrap", (list_of(optional),), items, _unwrapped)
    yield method("unwrapOpt", (list_of(optional),), items, _unwrapped)
    yield method("value", (optional,), value, _value)
    yield method("hasValue", (optional,), BOOL, lambda each: each.value is not MISSING)
    # What they fall back to is evaluated only when it is needed, by the plan itself.
    yield method("or", (optional, optional), optional, lambda first, other: other if first.value is MISSING else first)
    yield method("orValue", (optional, value), value, lambda first, other: other if first is NONE else first.value)
    yield method("first", (items,), optional, lambda each: Optional(each[0]) if each else NONE)
    yield method("last", (items,), optional, lambda each: Optional(each[-1]) if each else NONE)


def declared() -> Iterator[Overload]:
    """All of them."""
    yield from quantities()
    yield from versions()
    yield from networks()
    yield from optionals()
