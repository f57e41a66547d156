"""Kubernetes quantities ("1500m", "80Gi") as exact numbers.

Source: k8s.io/apimachinery pkg/api/resource, type Quantity: a signed decimal with a binary suffix (Ki … Ei), a decimal
suffix (n, u, m, k, M … E) or a decimal exponent. As in the Go type, values are exact down to 1n and finer values are
rounded away from zero. A value with a binary suffix is limited to 2^63-1.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import total_ordering
from math import ceil, floor
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

_BINARY: Final = {"Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "Ti": 1024**4, "Pi": 1024**5, "Ei": 1024**6}
_BINARY_LIMIT: Final = Fraction(2**63 - 1)
_POWERS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL: Final = {suffix: Fraction(10) ** power for suffix, power in _POWERS.items()}
_MAX_KEPT_DIGITS: Final = 18
_MAX_KEPT_BINARY_DIGITS: Final = {"Ki": 11, "Mi": 8, "Gi": 5, "Ti": 2}
_PATTERN: Final = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:([KMGTPE]i|[numkMGTPE]?)|[eE]([+-]?\d{1,3}))", re.ASCII)


@total_ordering
class Quantity:
    """An exact amount, written as Kubernetes writes it.

    Takes an int, or a string such as `"4"`, `"500m"`, `"80Gi"` or `"1e3"`. Raises ValueError for anything else. `str()`
    gives the canonical form: no fraction, and the largest suffix or exponent that keeps the value exact. Quantities
    compare with each other and with ints by value.

    value: the amount as an exact number.
    binary: whether `str()` prefers binary suffixes (Ki … Ei) to decimal ones.
    exponent: whether `str()` writes a decimal exponent, a multiple of 3, in place of a suffix: `1e9`.
    given: the text that it was made from; None if it was made from a number.
    """

    __slots__ = ("binary", "exponent", "given", "value")

    def __init__(self, text: str | int | Quantity) -> None:
        self.value: Fraction
        self.binary = self.exponent = False
        self.given: str | None = None
        if isinstance(text, Quantity):
            self.value, self.binary, self.exponent, self.given = text.value, text.binary, text.exponent, text.given
        elif isinstance(text, int) and not isinstance(text, bool):
            self.value = Fraction(text)
        elif isinstance(text, str) and (match := _PATTERN.fullmatch(text)):
            self.given = text
            sign, digits, suffix, exponent = match.groups()
            self.binary, self.exponent = suffix in _BINARY, exponent is not None
            self.value = _rounded(_parse(sign, digits, suffix, exponent))
        else:
            raise ValueError(
                f"{text!r} is not a quantity: want a number with or without a suffix, such as 4, 500m, 80Gi"
            )

    @classmethod
    def of(cls, value: Fraction | int, *, binary: bool = False) -> Self:
        """Return a quantity of an exact number. `binary` prefers binary suffixes, which end at 2^63-1."""
        made = cls(0)
        made.value = _rounded(Fraction(value))
        made.binary = binary and abs(made.value) <= _BINARY_LIMIT
        return made

    @property
    def stored(self) -> str:
        """The text that an API server stores: the given one if the Go type takes that as canonical, else `str()`."""
        return self.given if self.given is not None and _is_kept(self.given) else str(self)

    def __str__(self) -> str:
        value = self.value
        if self.binary and value.denominator == 1 and abs(value) >= _BINARY["Ki"]:
            for suffix, factor in reversed(_BINARY.items()):
                if value % factor == 0:
                    return f"{value / factor}{suffix}"
            return str(value)
        if self.exponent and value:
            return _with_exponent(value)
        for suffix, scale in reversed(_DECIMAL.items()):
            if (value / scale).denominator == 1 and value:
                return f"{value / scale}{suffix}"
        return "0"

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __int__(self) -> int:
        """Round the amount to a whole number, away from zero, as `Quantity.Value()` of the Go type does."""
        return ceil(self.value) if self.value > 0 else floor(self.value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Quantity | int) and not isinstance(other, bool):
            return self.value == Quantity(other).value
        return NotImplemented

    def __lt__(self, other: Quantity | int) -> bool:
        return self.value < Quantity(other).value

    def __hash__(self) -> int:
        return hash(self.value)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read and write a quantity as text in models and files."""
        from pydantic_core import core_schema  # noqa: PLC0415 (only where a model has a quantity)

        text = core_schema.plain_serializer_function_ser_schema(str)
        return core_schema.no_info_plain_validator_function(cls, serialization=text)


def _parse(sign: str, digits: str, suffix: str | None, exponent: str | None) -> Fraction:
    number = Fraction(digits if not digits.endswith(".") else digits[:-1])
    if sign == "-":
        number = -number
    if exponent is not None:
        return number * Fraction(10) ** int(exponent)
    if suffix in _BINARY:
        return max(-_BINARY_LIMIT, min(number * _BINARY[suffix], _BINARY_LIMIT))
    return number * _DECIMAL[suffix or ""]


def _is_kept(text: str) -> bool:
    """Return whether the Go type writes a text as it was read, with its sign, zeros in front, `E` and a point.

    It does so if the digits are few, begin and end like those of the canonical form, and the last one has an exponent
    that is a multiple of 3.
    """
    match = _PATTERN.fullmatch(text)
    assert match is not None
    _, digits, suffix, exponent = match.groups()
    whole, _, fraction = digits.partition(".")
    whole = whole.lstrip("0")
    if suffix in _BINARY:
        few = not fraction and 0 < len(whole) <= _MAX_KEPT_BINARY_DIGITS.get(suffix, 0)
        return few and int(whole) % 8 != 0
    power = (int(exponent) if exponent is not None else _POWERS[suffix or ""]) - len(fraction)
    few = bool(whole) and len(whole) + len(fraction) <= _MAX_KEPT_DIGITS and power >= _POWERS["n"]
    return few and power % 3 == 0 and not (whole + fraction).endswith("000")


def _with_exponent(value: Fraction) -> str:
    """Write an amount, not zero, as a whole number with the largest exponent that is a multiple of 3; none for 0."""
    power = -9  # nothing is finer than a billionth
    number = int(value * 10**9)
    while number % 1000 == 0:
        number, power = number // 1000, power + 3
    return f"{number}e{power}" if power else str(number)


def _rounded(value: Fraction) -> Fraction:
    """Round to whole nano units away from zero. Kubernetes knows nothing finer."""
    nano = value * 10**9
    if nano.denominator == 1:
        return value
    return Fraction(ceil(nano) if nano > 0 else floor(nano), 10**9)
