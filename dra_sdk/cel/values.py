"""The values of CEL while an expression runs, as Python values.

bool, float, str, bytes, list and dict are themselves, `null` is None, an int of CEL is int and an unsigned one `UInt`.
Maps may have keys of different types whose Python hashes collide (1 and true), so that lookups go through `find`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import total_ordering
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

from dra_sdk.cel import types
from dra_sdk.cel.types import Kind, Type
from dra_sdk.model.quantity import Quantity

INT64: Final = 2**63 - 1
UINT64: Final = 2**64 - 1
MISSING: Final = object()

_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?", re.ASCII
)
_IDENTIFIER: Final = re.compile(r"0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*", re.ASCII)


MAX_MADE: Final = 2_000_000
"""The largest text or list that an evaluation may make; the costs alone would allow far more."""


class EvaluationError(Exception):
    """Why an expression has no value; becomes a CelRuntimeError once the expression is known."""


class CostLimitError(Exception):
    """The evaluation became too expensive; unlike EvaluationError, no `||` can absorb it."""


class UInt(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Optional:
    """A value that may be missing: `optional.of(x)`, or `NONE`."""

    value: Any


NONE: Final = Optional(MISSING)


class Computed(Quantity):
    """A quantity that `add` or `sub` made, which Kubernetes (up to 1.37) can compare only as the left side of `==`."""

    __slots__ = ()


@total_ordering
class Semver:
    """A semantic version 2.0.0; build metadata is kept, and ignored in comparisons."""

    __slots__ = ("_key", "build", "major", "minor", "patch", "prerelease")

    def __init__(self, text: str) -> None:
        match = _SEMVER.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a semantic version: want major.minor.patch, such as 1.2.3 or 1.2.3-rc.1")
        self.major, self.minor, self.patch = (int(each) for each in match.groups()[:3])
        self.prerelease, self.build = match[4] or "", match[5] or ""
        parts = self.prerelease.split(".") if self.prerelease else []
        if max(self.major, self.minor, self.patch) > UINT64 or not all(map(_IDENTIFIER.fullmatch, parts)):
            raise ValueError(f"{text!r} is not a semantic version: a number is too large or has leading zeros")
        if self.build and not all(self.build.split(".")):
            raise ValueError(f"{text!r} is not a semantic version: a part of its build metadata is empty")
        order = tuple((0, int(each), "") if each.isdigit() else (1, 0, each) for each in parts)
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
    """An address with the length of its prefix; bits after the prefix are kept, as Kubernetes does."""

    address: Address
    prefix: int

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix}"


_NAMES: Final[tuple[tuple[Any, Type], ...]] = (
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
    (Type, types.type_of(types.DYN)),
)


_EXACT: Final = {kind: found for kind, found in _NAMES if isinstance(kind, type)} | {
    dict: types.map_of(types.DYN, types.DYN),
    list: types.list_of(types.DYN),
}


def type_of(value: Any) -> Type:
    """The type of a value; elements of lists and maps are dyn."""
    return _EXACT.get(type(value)) or next(found for kind, found in _NAMES if isinstance(value, kind))


def fits(value: Any, wanted: Type) -> bool:
    """Whether a value may be passed where a function wants this type; lists are judged by their first element."""
    if wanted.kind in {Kind.DYN, Kind.ANY, Kind.PARAM}:
        return True
    if type_of(value).name != wanted.name:
        return False
    if wanted.kind is Kind.LIST:
        return not value or fits(value[0], wanted.params[0])
    return True


def bounded(length: int) -> None:
    """EvaluationError if a text or list of this length must not be made."""
    if length > MAX_MADE:
        raise EvaluationError(f"a value of {length} characters or items is too large")


def is_number(value: Any) -> bool:
    """Whether it is an int, a uint or a double."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def equal(left: Any, right: Any) -> bool:
    """CEL's `==`: numbers compare across their types, everything else only within one.

    EvaluationError where Kubernetes' own types are compared with anything else.
    """
    if isinstance(left, str | bytes | bool | None):
        return type(left) is type(right) and bool(left == right)
    if is_number(left):
        return is_number(right) and bool(left == right)
    if isinstance(left, Mapping):
        return isinstance(right, Mapping) and _equal_maps(left, right)
    if isinstance(left, Sequence):
        return _is_list(right) and len(left) == len(right) and all(map(equal, left, right))
    return _equal_opaque(left, right)


def _equal_opaque(left: Any, right: Any) -> bool:
    if isinstance(left, Optional) and isinstance(right, Optional):
        return left is right if MISSING in (left.value, right.value) else equal(left.value, right.value)
    if isinstance(left, Type | Optional):
        return bool(left == right)
    if isinstance(right, Computed) or type_of(left).name != type_of(right).name:
        raise EvaluationError(f"no such overload: {type_of(left)} == {type_of(right)}")
    return bool(left == right)


def same(left: Any, right: Any) -> bool:
    """The same for what looks through lists, and for `!=`: what cannot be compared is different."""
    try:
        return equal(left, right)
    except EvaluationError:
        return False


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _equal_maps(left: Mapping[Any, Any], right: Mapping[Any, Any]) -> bool:
    pairs = [(value, find(right, key)) for key, value in left.items()]
    return len(left) == len(right) and all(other is not MISSING and equal(value, other) for value, other in pairs)


def find(container: Mapping[Any, Any], key: Any) -> Any:
    """What a map holds under a key, or MISSING."""
    found = container.get(key, MISSING) if isinstance(key, str | int | float) else MISSING
    if isinstance(key, str) or found is MISSING:
        return found
    # 1 and true hash alike in Python and are different keys in CEL.
    return next((value for each, value in container.items() if equal(each, key)), MISSING)


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1; EvaluationError if the two have no order."""
    numbers = is_number(left) and is_number(right)
    if not numbers and (type(left) is not type(right) or not isinstance(left, str | bytes | bool)):
        raise EvaluationError("no such overload")
    if left != left or right != right:  # noqa: PLR0124 (NaN alone is unequal to itself)
        raise EvaluationError("NaN values cannot be ordered")
    return int(left > right) - int(left < right)


def size(value: Any) -> int:
    """The size that costs are computed from: characters, bytes, items or entries; 1 for everything else."""
    if isinstance(value, str | bytes | Mapping | Sequence):
        return len(value)
    if isinstance(value, Optional):
        return 1 if value.value is MISSING else size(value.value)
    if isinstance(value, IPv4Address | IPv6Address):
        return len(value.packed)
    return -(-value.prefix // 8) if isinstance(value, Cidr) else 1
