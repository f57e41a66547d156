"""Quantities, semantic versions, and optionals.

Source: Kubernetes apiserver, library/quantity.go and semverlib.go (1.36); cel-go's optional types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dra_sdk.cel.comparison import Count
from dra_sdk.cel.library.overloads import Overload, accepted, method, parsed, walk
from dra_sdk.cel.types import BOOL, DOUBLE, INT, QUANTITY, SEMVER, STRING, Type, list_of, optional_of, param
from dra_sdk.cel.values import (
    INT64,
    MISSING,
    NONE,
    ComputedQuantity,
    Duration,
    EvaluationError,
    Optional,
    Semver,
    Timestamp,
)
from dra_sdk.model.quantity import Quantity

#: Python copies this many items in the time of one step, as a power of two.
_COPY_SHIFT: Final = 3
#: Go's time.Time that is not set: 0001-01-01T00:00:00Z.
_ZERO_TIME: Final = Timestamp(-62_135_596_800 * 10**9)


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
    return ComputedQuantity.of(left.value + Quantity(right).value)


def _difference(left: Quantity, right: Quantity | int) -> Quantity:
    return ComputedQuantity.of(left.value - Quantity(right).value)


def quantities() -> Iterator[Overload]:
    """Declare `quantity()` and the methods of quantities."""
    yield Overload("quantity", (STRING,), QUANTITY, parsed(Quantity), walk())
    yield Overload("isQuantity", (STRING,), BOOL, accepted(Quantity), walk())
    yield Overload("sign", (QUANTITY,), INT, lambda quantity: _order(quantity.value, 0))
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
    """Return a version without a leading `v` and leading zeros, and with all three numbers."""
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped[:1].isdigit() else "0" + stripped
    if len(parts) < 3:  # noqa: PLR2004 (major, minor, patch)
        if any(sign in parts[-1] for sign in "+-"):
            raise ValueError(f"{text!r} is not a semantic version: a short one cannot have a pre-release or build part")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def versions() -> Iterator[Overload]:
    """Declare `semver()` and the methods of semantic versions."""
    for params in ((STRING,), (STRING, BOOL)):
        yield Overload("semver", params, SEMVER, parsed(_semver), walk())
        yield Overload("isSemver", params, BOOL, accepted(_semver), walk())
    yield from _ordered(SEMVER)
    yield method("major", (SEMVER,), INT, lambda version: version.major)
    yield method("minor", (SEMVER,), INT, lambda version: version.minor)
    yield method("patch", (SEMVER,), INT, lambda version: version.patch)


def _value(optional: Optional) -> Any:
    if optional.value is MISSING:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def _non_zero(value: Any) -> Optional:
    zero = value in {Duration(0), _ZERO_TIME} if isinstance(value, Duration | Timestamp) else _is_empty(value)
    return NONE if zero else Optional(value)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, bool | int | float | str | bytes | Sequence | Mapping) and not value)


def _unwrapped(count: Count, items: Sequence[Optional]) -> list[Any]:
    count(len(items) >> _COPY_SHIFT)
    return [item.value for item in items if item.value is not MISSING]


def optionals() -> Iterator[Overload]:
    """Declare `optional.of()` and the methods of optionals."""
    value = param("V")
    optional, items = optional_of(value), list_of(value)
    yield Overload("optional.of", (value,), optional, Optional)
    yield Overload("optional.ofNonZeroValue", (value,), optional, _non_zero)
    yield Overload("optional.none", (), optional, lambda: NONE)
    yield Overload("optional.unwrap", (list_of(optional),), items, _unwrapped, counted=True)
    yield method("unwrapOpt", (list_of(optional),), items, _unwrapped, counted=True)
    yield method("value", (optional,), value, _value)
    yield method("hasValue", (optional,), BOOL, lambda opt: opt.value is not MISSING)
    # The planner evaluates what they fall back to, and only when it is needed.
    yield method("or", (optional, optional), optional, lambda first, other: other if first.value is MISSING else first)
    yield method("orValue", (optional, value), value, lambda first, other: other if first is NONE else first.value)
    yield method("first", (items,), optional, lambda sequence: Optional(sequence[0]) if sequence else NONE)
    yield method("last", (items,), optional, lambda sequence: Optional(sequence[-1]) if sequence else NONE)


def declared() -> Iterator[Overload]:
    """Declare all of them."""
    yield from quantities()
    yield from versions()
    yield from optionals()
