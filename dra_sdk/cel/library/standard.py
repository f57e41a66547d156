"""The standard library of CEL: operators, `size`, indexing, and conversions from `int()` to `type()`.

Texts are read and written as Go's strconv does. `&&`, `||`, `?:`, selection and indexing are evaluated by the planner
itself; they are declared here for their types and costs. Source: cel-go, common/stdlib/standard.go.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from math import copysign, inf, isfinite, isnan, nan, trunc
from typing import Any, Final

from dra_sdk.cel.comparison import Count, compare, equal, find, same
from dra_sdk.cel.library.overloads import (
    COMPARISON,
    NOMINAL,
    CallEstimate,
    CallSite,
    Cost,
    Overload,
    Range,
    method,
    smaller_size,
    walk,
)
from dra_sdk.cel.types import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DYN,
    FORMAT,
    INT,
    IP,
    QUANTITY,
    SEMVER,
    STRING,
    UINT,
    URL,
    Type,
    list_of,
    map_of,
    optional_of,
    param,
)
from dra_sdk.cel.types import type_of as meta
from dra_sdk.cel.values import (
    INT64,
    MISSING,
    UINT64,
    Address,
    Cidr,
    EvaluationError,
    Format,
    Semver,
    UInt,
    Url,
    check_size,
    size,
    type_of,
)
from dra_sdk.model.quantity import Quantity

FOLDED: Final = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})
"""Functions that are evaluated once, when the expression is compiled, if their operand is a constant."""

_A, _B = param("A"), param("B")
_LIST, _MAP = list_of(_A), map_of(_A, _B)
_NUMBERS: Final = (INT, UINT, DOUBLE)
_CHEAP_TYPES: Final = frozenset({QUANTITY, SEMVER, IP, CIDR})
_CHEAP: Final = (Quantity, Semver, Address, Cidr, Url, Format)
_FORMAT_NAME_SIZE: Final = 64
#: Python copies this many items in the time of one step, as a power of two.
_COPY_SHIFT: Final = 4
_INTEGER: Final = re.compile(r"[+-]?0*[0-9]{1,20}", re.ASCII)
_DECIMAL: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|infinity|nan)", re.IGNORECASE
)
_TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")
_FALSE: Final = ("0", "f", "F", "false", "FALSE", "False")
_LARGEST_PLAIN: Final = 6
_SMALLEST_PLAIN: Final = -4


def integer(value: int) -> int:
    """Return an int that fits in 64 bits; EvaluationError if it does not."""
    if not -INT64 - 1 <= value <= INT64:
        raise EvaluationError("integer overflow")
    return value


def unsigned(value: int) -> UInt:
    """Return a uint that fits in 64 bits; EvaluationError if it does not."""
    if not 0 <= value <= UINT64:
        raise EvaluationError("unsigned integer overflow")
    return UInt(value)


def _divide(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("division by zero")
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


def _modulo(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("modulus by zero")
    return left - _divide(left, right) * right


def _divide_doubles(left: float, right: float) -> float:
    if right:
        return left / right
    return nan if left == 0 or isnan(left) else copysign(inf, left) * copysign(1.0, right)


def _arithmetic() -> Iterator[Overload]:
    """Declare arithmetic in the order of cel-go: the first overload that fits decides about a type variable."""
    joined = Cost(_estimate_join, lambda args, _result: -(-(size(args[0]) + size(args[1])) // 10))
    yield Overload("_+_", (BYTES, BYTES), BYTES, operator.add, joined)
    doubles: dict[str, Callable[[float, float], float]] = {
        "_+_": operator.add, "_-_": operator.sub, "_*_": operator.mul, "_/_": _divide_doubles,
    }  # fmt: skip
    for name, run_double in doubles.items():
        yield Overload(name, (DOUBLE, DOUBLE), DOUBLE, run_double)
    whole: dict[str, Callable[[int, int], int]] = {
        "_+_": operator.add, "_-_": operator.sub, "_*_": operator.mul, "_/_": _divide, "_%_": _modulo,
    }  # fmt: skip
    for name, run in whole.items():
        yield Overload(name, (INT, INT), INT, _checked(run, integer))
    yield Overload("_+_", (_LIST, _LIST), _LIST, _concatenated, Cost(_estimate_concatenation, 1), counted=True)
    yield Overload("_+_", (STRING, STRING), STRING, operator.add, joined)
    for name, run in whole.items():
        yield Overload(name, (UINT, UINT), UINT, _checked(run, unsigned))
    yield Overload("-_", (DOUBLE,), DOUBLE, operator.neg)
    yield Overload("-_", (INT,), INT, lambda a: integer(-a))
    yield Overload("!_", (BOOL,), BOOL, operator.not_)


def _checked(run: Callable[[int, int], int], limit: Callable[[int], int]) -> Callable[[int, int], int]:
    return lambda left, right: limit(run(left, right))


def _estimate_join(site: CallSite) -> CallEstimate:
    total = site.size(0).plus(site.size(1))
    return CallEstimate(total.scaled(0.1), total)


def _concatenated(count: Count, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    check_size(len(left) + len(right))
    count((len(left) + len(right)) >> _COPY_SHIFT)
    return [*left, *right]


def _estimate_concatenation(site: CallSite) -> CallEstimate:
    return NOMINAL.estimate(site)._replace(size=site.size(0).plus(site.size(1)))


ORDER: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "_<_": operator.lt, "_<=_": operator.le, "_>_": operator.gt, "_>=_": operator.ge,
}  # fmt: skip


def _order() -> Iterator[Overload]:
    pairs = [(left, right) for left in _NUMBERS for right in _NUMBERS]
    for name, test in ORDER.items():
        run = ordered(test)
        # `compare` looks at the types itself.
        for pair in [(BOOL, BOOL), *pairs]:
            yield Overload(name, pair, BOOL, run, loose=True)
        for kind in (STRING, BYTES):
            yield Overload(name, (kind, kind), BOOL, run, COMPARISON, loose=True)


def ordered(test: Callable[[int, int], bool]) -> Callable[[Any, Any], bool]:
    """Return the comparison that a test of the result of `compare` makes."""
    return lambda left, right: test(compare(left, right), 0)


def _estimate_equality(site: CallSite) -> CallEstimate:
    kind = site.type(0)
    if kind == site.type(1):
        if kind in _CHEAP_TYPES:
            return NOMINAL.estimate(site)
        if kind == FORMAT:
            return CallEstimate(Range(1, _FORMAT_NAME_SIZE).scaled(0.1))
        if kind == URL:
            known = site.known_size(1)
            return CallEstimate(Range(1, known.high if known else 1).scaled(0.1))
    return COMPARISON.estimate(site)


def _cost_of_equality(args: Sequence[Any], result: Any) -> int:
    return 1 if isinstance(args[0], _CHEAP) else smaller_size(args, result)


def _unequal(count: Count, left: Any, right: Any) -> bool:
    return not same(count, left, right)


def _contained(count: Count, item: Any, items: Sequence[Any]) -> bool:
    return any(same(count, item, member) for member in items)


def _has_key(count: Count, key: Any, container: Mapping[Any, Any]) -> bool:
    return find(count, container, key) is not MISSING


def declared() -> Iterator[Overload]:
    """Declare all of them."""
    yield from _operators()
    yield from _conversions()


def _operators() -> Iterator[Overload]:
    yield Overload("_&&_", (BOOL, BOOL), BOOL, operator.and_)
    yield Overload("_||_", (BOOL, BOOL), BOOL, operator.or_)
    yield Overload("_?_:_", (BOOL, _A, _A), _A, lambda c, a, b: a if c else b)
    yield Overload("@not_strictly_false", (BOOL,), BOOL, bool)
    yield from _arithmetic()
    yield from _order()
    yield Overload("_==_", (_A, _A), BOOL, equal, Cost(_estimate_equality, _cost_of_equality), counted=True)
    yield Overload("_!=_", (_A, _A), BOOL, _unequal, COMPARISON, counted=True)
    yield Overload("@in", (_A, _LIST), BOOL, _contained, walk(1, 1.0), counted=True)
    yield Overload("@in", (_A, _MAP), BOOL, _has_key, counted=True)
    for kind in (BYTES, STRING, _LIST, _MAP):
        yield Overload("size", (kind,), INT, len)
        yield method("size", (kind,), INT, len)
    yield Overload("_[_]", (_LIST, INT), _A, operator.getitem)
    yield Overload("_[_]", (_MAP, _A), _B, operator.getitem)
    yield Overload("_[_]", (optional_of(_LIST), INT), optional_of(_A), operator.getitem)
    yield Overload("_[_]", (optional_of(_MAP), _A), optional_of(_B), operator.getitem)
    yield Overload("_[?_]", (_LIST, INT), optional_of(_A), operator.getitem)
    yield Overload("_[?_]", (optional_of(_LIST), INT), optional_of(_A), operator.getitem)
    yield Overload("_[?_]", (_MAP, _A), optional_of(_B), operator.getitem)
    yield Overload("_[?_]", (optional_of(_MAP), _A), optional_of(_B), operator.getitem)
    yield Overload("_?._", (DYN, STRING), optional_of(_B), operator.getitem)


def _failed(value: Any, wanted: Type) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{type_of(value).name}' to '{wanted}'")


def _int(value: Any) -> int:
    if isinstance(value, str):
        if not _INTEGER.fullmatch(value):
            raise _failed(value, INT)
        return integer(int(value))
    if isinstance(value, float):
        if not isfinite(value):
            raise EvaluationError("integer overflow")
        return integer(trunc(value))
    return integer(int(value))


def _uint(value: Any) -> UInt:
    if isinstance(value, str) and not (_INTEGER.fullmatch(value) and value[0].isdigit()):
        raise _failed(value, UINT)
    if isinstance(value, float) and not isfinite(value):
        raise EvaluationError("unsigned integer overflow")
    return unsigned(int(value))


def _double(value: Any) -> float:
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        raise _failed(value, DOUBLE)
    return float(value)


def _bool(value: Any) -> bool:
    if isinstance(value, str):
        if value not in (*_TRUE, *_FALSE):
            raise _failed(value, BOOL)
        return value in _TRUE
    return bool(value)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def to_string(value: Any) -> str:
    """Return a scalar as `string()` does; EvaluationError for bytes that are no UTF-8."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _shown(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None
    return str(value)


def _shown(value: float) -> str:
    """Return a double in the shortest form, with an exponent where Go writes one."""
    if not isfinite(value):
        return "NaN" if isnan(value) else f"{'+' if value > 0 else '-'}Inf"
    if value == 0:
        return "-0" if str(value)[0] == "-" else "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    power = len(digits) + int(exponent) - 1
    if _SMALLEST_PLAIN <= power < _LARGEST_PLAIN:
        return format(Decimal(repr(value)).normalize(), "f")
    first, *rest = map(str, digits)
    fraction = f".{''.join(rest)}" if rest else ""
    return f"{'-' if sign else ''}{first}{fraction}e{power:+03d}"


def _estimate_bytes(site: CallSite) -> CallEstimate:
    length = site.size(0)
    # A character takes up to four bytes.
    return CallEstimate(length.scaled(0.1), length._replace(high=min(length.high * 4, 2**64 - 1)))


def _estimate_text(site: CallSite) -> CallEstimate:
    length = site.size(0)
    return CallEstimate(length.scaled(0.1), length._replace(low=length.low // 4))


def _conversions() -> Iterator[Overload]:
    """Declare conversions in the order of cel-go: the first overload that fits decides about a type variable."""
    for kind in (BOOL, STRING):
        yield Overload("bool", (kind,), BOOL, _bool)
    for name, result, run in (("int", INT, _int), ("uint", UINT, _uint), ("double", DOUBLE, _double)):
        for kind in (result, *(other for other in (DOUBLE, INT, STRING, UINT) if other != result)):
            yield Overload(name, (kind,), result, run)
    for kind in (STRING, BOOL):
        yield Overload("string", (kind,), STRING, to_string)
    yield Overload("string", (BYTES,), STRING, to_string, Cost(_estimate_text, walk().actual))
    for kind in (DOUBLE, INT, UINT, IP, CIDR):
        yield Overload("string", (kind,), STRING, to_string)
    yield Overload("bytes", (BYTES,), BYTES, _bytes)
    yield Overload("bytes", (STRING,), BYTES, _bytes, Cost(_estimate_bytes, walk().actual))
    yield Overload("dyn", (_A,), DYN, lambda value: value)
    yield Overload("type", (_A,), meta(_A), type_of)
