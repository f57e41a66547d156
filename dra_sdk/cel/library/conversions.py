"""Conversions between the types of CEL, from `int()` to `type()`.

Source: cel-go's standard library; texts are read and written as Go's strconv does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from math import isfinite, isnan, trunc
from typing import Any, Final

from dra_sdk.cel.cost import Price, Quote, Site, walk
from dra_sdk.cel.library.functions import Overload, function
from dra_sdk.cel.library.operators import integer, unsigned
from dra_sdk.cel.types import BOOL, BYTES, CIDR, DOUBLE, DYN, INT, IP, STRING, UINT, Type, param
from dra_sdk.cel.types import type_of as meta
from dra_sdk.cel.values import EvaluationError, UInt, type_of

_INTEGER: Final = re.compile(r"[+-]?0*[0-9]{1,20}", re.ASCII)
_DECIMAL: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|infinity|nan)", re.IGNORECASE
)
_TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")
_FALSE: Final = ("0", "f", "F", "false", "FALSE", "False")
_LARGEST_PLAIN: Final = 6
_SMALLEST_PLAIN: Final = -4

FOLDED: Final = frozenset({"bool", "bytes", "double", "dyn", "int", "string", "type", "uint"})
"""Functions whose value is computed once, when the expression is compiled, if their operand is a constant."""


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


def _string(value: Any) -> str:
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
    """A double in the shortest form, with an exponent where Go writes one."""
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


def _estimate_bytes(site: Site) -> Quote:
    length = site.size(0)
    # A character takes up to four bytes.
    return Quote(length.scaled(0.1), length._replace(high=min(length.high * 4, 2**64 - 1)))


def _estimate_text(site: Site) -> Quote:
    length = site.size(0)
    return Quote(length.scaled(0.1), length._replace(low=length.low // 4))


def declared() -> Iterator[Overload]:
    """All conversions."""
    a = param("A")
    for kind in (BOOL, STRING):
        yield function("bool", (kind,), BOOL, _bool)
    for kind in (DOUBLE, INT, STRING, UINT):
        yield function("int", (kind,), INT, _int)
        yield function("uint", (kind,), UINT, _uint)
        yield function("double", (kind,), DOUBLE, _double)
    for kind in (BOOL, DOUBLE, INT, STRING, UINT, IP, CIDR):
        yield function("string", (kind,), STRING, _string)
    yield function("string", (BYTES,), STRING, _string, Price(_estimate_text, walk().actual))
    yield function("bytes", (BYTES,), BYTES, _bytes)
    yield function("bytes", (STRING,), BYTES, _bytes, Price(_estimate_bytes, walk().actual))
    yield function("dyn", (a,), DYN, lambda value: value)
    yield function("type", (a,), meta(a), type_of)
