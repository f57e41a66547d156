"""The values of CEL while an expression runs, as Python values.

bool, float, str, bytes, list and dict stand for themselves and None for `null`. An int of CEL is an int, an unsigned
one a `UInt`. The types of Kubernetes and of protobuf have a class each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import total_ordering
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

from dra_sdk.cel import types
from dra_sdk.cel.types import Type, TypeKind
from dra_sdk.model.quantity import Quantity

INT64: Final = 2**63 - 1
UINT64: Final = 2**64 - 1
MISSING: Final = object()
MAX_SIZE: Final = 2_000_000
"""How many characters or items a value may have that an evaluation makes; cel-go's costs would allow far more."""

_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?", re.ASCII
)
_IDENTIFIER: Final = re.compile(r"0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*", re.ASCII)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class EvaluationError(Exception):
    """Why an expression has no value; becomes a CelRuntimeError once the expression is known."""


class CostLimitError(Exception):
    """The evaluation became too expensive. Unlike an EvaluationError, `||` cannot absorb it."""


class MissingPackageError(Exception):
    """An expression needs a Python package that is not installed; becomes a CelPackageError."""


class UInt(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Optional:
    """An optional value: `optional.of(x)`, or `NONE`.

    value: the value, or MISSING.
    """

    value: Any


NONE: Final = Optional(MISSING)


class ComputedQuantity(Quantity):
    """A quantity that `add` or `sub` made; Kubernetes (up to 1.37) compares it only as the left side of `==`."""

    __slots__ = ()


@total_ordering
class Semver:
    """A semantic version 2.0.0. Build metadata is kept, and ignored in comparisons."""

    __slots__ = ("_key", "build", "major", "minor", "patch", "prerelease")

    def __init__(self, text: str) -> None:
        match = _SEMVER.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a semantic version: want major.minor.patch, such as 1.2.3 or 1.2.3-rc.1")
        self.major, self.minor, self.patch = (int(number) for number in match.groups()[:3])
        self.prerelease, self.build = match[4] or "", match[5] or ""
        parts = self.prerelease.split(".") if self.prerelease else []
        if max(self.major, self.minor, self.patch) > UINT64 or not all(map(_IDENTIFIER.fullmatch, parts)):
            raise ValueError(f"{text!r} is not a semantic version: a number is too large or has leading zeros")
        if self.build and not all(self.build.split(".")):
            raise ValueError(f"{text!r} is not a semantic version: a part of its build metadata is empty")
        order = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)
        self._key = (self.major, self.minor, self.patch, not parts, order)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._key == other._key

    def __lt__(self, other: Semver) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        tail = (f"-{self.prerelease}" if self.prerelease else "") + (f"+{self.build}" if self.build else "")
        return f"{self.major}.{self.minor}.{self.patch}{tail}"


Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Cidr:
    """A network address. Bits after the prefix are kept, as Kubernetes keeps them.

    address: the address.
    prefix: the length of the prefix in bits.
    """

    address: Address
    prefix: int

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix}"


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time.

    nanoseconds: its length; may be negative.
    """

    nanoseconds: int


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A point in time.

    nanoseconds: nanoseconds since 1970-01-01T00:00:00Z.
    offset: the offset from UTC in seconds that it was written with; comparisons ignore it.
    """

    nanoseconds: int
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed URL; all parts as Go's net/url has them.

    scheme: the scheme in lower case, such as `https`.
    host: host and port, without escapes.
    path: the path as `EscapedPath` gives it.
    query: the raw query, without the question mark.
    text: the whole URL as `String` gives it, by which two URLs are compared.
    """

    scheme: str
    host: str
    path: str
    query: str
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Format:
    """A named format of Kubernetes' format library, such as `dns1123Label`. Two formats are equal if they are one.

    name: how Kubernetes names it.
    problems: what is wrong with a text; empty if the text has this format.
    pattern_size: the length of its regular expression that costs are computed with.
    """

    name: str
    problems: Callable[[str], list[str]]
    pattern_size: int


PYTHON_TYPES: Final[tuple[tuple[Any, Type], ...]] = (
    (bool, types.BOOL),
    (UInt, types.UINT),
    (int, types.INT),
    (float, types.DOUBLE),
    (str, types.STRING),
    (bytes, types.BYTES),
    (type(None), types.NULL),
    (Mapping, types.map_of(types.DYN, types.DYN)),
    (Sequence, types.list_of(types.DYN)),
    (Quantity, types.QUANTITY),
    (Semver, types.SEMVER),
    (Optional, types.optional_of(types.DYN)),
    (Address, types.IP),
    (Cidr, types.CIDR),
    (Timestamp, types.TIMESTAMP),
    (Duration, types.DURATION),
    (Url, types.URL),
    (Format, types.FORMAT),
    (Type, types.type_of(types.DYN)),
)
"""The type of the values of each Python type, subclasses first."""
_EXACT: Final = {python_type: kind for python_type, kind in PYTHON_TYPES if isinstance(python_type, type)} | {
    dict: types.map_of(types.DYN, types.DYN),
    list: types.list_of(types.DYN),
}


def type_of(value: Any) -> Type:
    """Return the type of a value; elements of lists and maps are dyn."""
    return _EXACT.get(type(value)) or next(kind for python_type, kind in PYTHON_TYPES if isinstance(value, python_type))


def fits(value: Any, wanted: Type) -> bool:
    """Return whether a value may be passed where a function wants this type; the first element stands for a list."""
    if wanted.kind in {TypeKind.DYN, TypeKind.ANY, TypeKind.PARAM}:
        return True
    if type_of(value).name != wanted.name:
        return False
    if wanted.kind is TypeKind.LIST:
        return not value or fits(value[0], wanted.params[0])
    return True


def go_text(text: str) -> str:
    """Return a text as Go decodes it from JSON: half a surrogate pair becomes U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def check_size(length: int) -> None:
    """Raise EvaluationError if a text or list of this length must not be made."""
    if length > MAX_SIZE:
        raise EvaluationError(f"a value of {length} characters or items is too large, the limit is {MAX_SIZE}")


def is_number(value: Any) -> bool:
    """Return whether a value is an int, a uint or a double."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_list(value: Any) -> bool:
    """Return whether a value is a list of CEL."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def size(value: Any) -> int:
    """Return the size that costs are computed from: characters, bytes, items or entries; 1 for everything else."""
    if isinstance(value, str | bytes | Mapping | Sequence):
        return len(value)
    if isinstance(value, Optional):
        return 1 if value.value is MISSING else size(value.value)
    if isinstance(value, IPv4Address | IPv6Address):
        return len(value.packed)
    return -(-value.prefix // 8) if isinstance(value, Cidr) else 1
