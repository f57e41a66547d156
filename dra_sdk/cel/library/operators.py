"""The operators of CEL: arithmetic, order, equality, membership, `size` and indexing.

Source: cel-go's standard library. `&&`, `||`, `?:`, selection and indexing are evaluated by the plan itself; they are
declared here for their types and their price.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import copysign, inf, isnan, nan
from typing import Any, Final

from dra_sdk.cel.cost import NOMINAL, Price, Quote, Site, smaller, walk
from dra_sdk.cel.library.functions import Overload, function, method
from dra_sdk.cel.types import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DYN,
    INT,
    IP,
    QUANTITY,
    SEMVER,
    STRING,
    UINT,
    list_of,
    map_of,
    optional_of,
    param,
)
from dra_sdk.cel.values import (
    INT64,
    MISSING,
    UINT64,
    Address,
    Cidr,
    EvaluationError,
    Semver,
    UInt,
    bounded,
    compare,
    equal,
    find,
    same,
    size,
)
from dra_sdk.model.quantity import Quantity

_A, _B = param("A"), param("B")
_LIST, _MAP = list_of(_A), map_of(_A, _B)
_NUMBERS: Final = (INT, UINT, DOUBLE)
_CHEAP_TYPES: Final = frozenset({QUANTITY, SEMVER, IP, CIDR})
_CHEAP: Final = (Quantity, Semver, Address, Cidr)


def integer(value: int) -> int:
    """An int of 64 bits, or EvaluationError."""
    if not -INT64 - 1 <= value <= INT64:
        raise EvaluationError("integer overflow")
    return value


def unsigned(value: int) -> UInt:
    """A uint of 64 bits, or EvaluationError."""
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
    """In the order of cel-go: the first overload that fits decides what a still unknown type is."""
    joined = Price(_estimate_join, lambda args, _result: -(-(size(args[0]) + size(args[1])) // 10))
    yield function("_+_", (BYTES, BYTES), BYTES, operator.add, joined)
    doubles: dict[str, Callable[[float, float], float]] = {
        "_+_": operator.add, "_-_": operator.sub, "_*_": operator.mul, "_/_": _divide_doubles,
    }  # fmt: skip
    for name, run_double in doubles.items():
        yield function(name, (DOUBLE, DOUBLE), DOUBLE, run_double)
    whole: dict[str, Callable[[int, int], int]] = {
        "_+_": operator.add, "_-_": operator.sub, "_*_": operator.mul, "_/_": _divide, "_%_": _modulo,
    }  # fmt: skip
    for name, run in whole.items():
        yield function(name, (INT, INT), INT, _checked(run, integer))
    yield function("_+_", (_LIST, _LIST), _LIST, _concatenated, Price(_estimate_concatenation, 1))
    yield function("_+_", (STRING, STRING), STRING, operator.add, joined)
    for name, run in whole.items():
        yield function(name, (UINT, UINT), UINT, _checked(run, unsigned))
    yield function("-_", (DOUBLE,), DOUBLE, operator.neg)
    yield function("-_", (INT,), INT, lambda a: integer(-a))
    yield function("!_", (BOOL,), BOOL, operator.not_)


def _checked(run: Callable[[int, int], int], limit: Callable[[int], int]) -> Callable[[int, int], int]:
    return lambda left, right: limit(run(left, right))


def _estimate_join(site: Site) -> Quote:
    total = site.size(0).plus(site.size(1))
    return Quote(total.scaled(0.1), total)


def _concatenated(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    bounded(len(left) + len(right))
    return [*left, *right]


def _estimate_concatenation(site: Site) -> Quote:
    return NOMINAL.estimate(site)._replace(size=site.size(0).plus(site.size(1)))


def _order() -> Iterator[Overload]:
    pairs = [(left, right) for left in _NUMBERS for right in _NUMBERS]
    tests: dict[str, Callable[[int, int], bool]] = {
        "_<_": operator.lt, "_<=_": operator.le, "_>_": operator.gt, "_>=_": operator.ge,
    }  # fmt: skip
    for name, test in tests.items():
        run = _ordered(test)
        # `compare` looks at the types itself.
        for pair in [(BOOL, BOOL), *pairs]:
            yield replace(function(name, pair, BOOL, run), loose=True)
        for kind in (STRING, BYTES):
            yield replace(function(name, (kind, kind), BOOL, run, smaller()), loose=True)


def _ordered(test: Callable[[int, int], bool]) -> Callable[[Any, Any], bool]:
    return lambda left, right: test(compare(left, right), 0)


def _estimate_equality(site: Site) -> Quote:
    if site.type(0) == site.type(1) and site.type(0) in _CHEAP_TYPES:
        return NOMINAL.estimate(site)
    return smaller().estimate(site)


def _price_equality(args: Any, result: Any) -> int:
    actual = smaller().actual
    return 1 if isinstance(args[0], _CHEAP) or isinstance(actual, int) else actual(args, result)


def _unequal(left: Any, right: Any) -> bool:
    return not same(left, right)


def _contained(item: Any, items: Sequence[Any]) -> bool:
    return any(same(item, each) for each in items)


def _has_key(key: Any, container: Mapping[Any, Any]) -> bool:
    return find(container, key) is not MISSING


def declared() -> Iterator[Overload]:
    """All operators."""
    yield function("_&&_", (BOOL, BOOL), BOOL, operator.and_)
    yield function("_||_", (BOOL, BOOL), BOOL, operator.or_)
    yield function("_?_:_", (BOOL, _A, _A), _A, lambda c, a, b: a if c else b)
    yield function("@not_strictly_false", (BOOL,), BOOL, bool)
    yield from _arithmetic()
    yield from _order()
    yield function("_==_", (_A, _A), BOOL, equal, Price(_estimate_equality, _price_equality))
    yield function("_!=_", (_A, _A), BOOL, _unequal, smaller())
    yield function("@in", (_A, _LIST), BOOL, _contained, walk(1, 1.0))
    yield function("@in", (_A, _MAP), BOOL, _has_key)
    for kind in (BYTES, STRING, _LIST, _MAP):
        yield function("size", (kind,), INT, len)
        yield method("size", (kind,), INT, len)
    yield function("_[_]", (_LIST, INT), _A, operator.getitem)
    yield function("_[_]", (_MAP, _A), _B, operator.getitem)
    yield function("_[_]", (optional_of(_LIST), INT), optional_of(_A), operator.getitem)
    yield function("_[_]", (optional_of(_MAP), _A), optional_of(_B), operator.getitem)
    yield function("_[?_]", (_LIST, INT), optional_of(_A), operator.getitem)
    yield function("_[?_]", (optional_of(_LIST), INT), optional_of(_A), operator.getitem)
    yield function("_[?_]", (_MAP, _A), optional_of(_B), operator.getitem)
    yield function("_[?_]", (optional_of(_MAP), _A), optional_of(_B), operator.getitem)
    yield function("_?._", (DYN, STRING), optional_of(_B), operator.getitem)
