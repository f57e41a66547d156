"""Quantities as whole numbers of billionths (10⁻⁹), which add and compare at the speed of integers.

This is exact, since a Kubernetes quantity has nothing finer than one billionth. Source: k8s.io/apimachinery, type
Quantity.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, NamedTuple

from dra_sdk.model.quantity import Quantity

NANOS_PER_UNIT: Final = 10**9
NANOS_PER_MILLI: Final = NANOS_PER_UNIT // 1000
MAX_INT64: Final = 2**63 - 1
"""The largest int64; the scheduler calculates in whole numbers, or thousandths, up to this."""


class NanoQuantity(NamedTuple):
    """A quantity.

    nano: its value in billionths.
    text: its text as an API server stores it, such as `80Gi`.
    """

    nano: int
    text: str

    @property
    def whole(self) -> int:
        """The value as a whole number, rounded away from zero."""
        return -(-self.nano // NANOS_PER_UNIT) if self.nano > 0 else self.nano // NANOS_PER_UNIT

    @property
    def thousandths(self) -> int | None:
        """The value in thousandths; None if it is not a whole number of them, or exceeds int64."""
        amount, rest = divmod(self.nano, NANOS_PER_MILLI)
        return None if rest or abs(amount) > MAX_INT64 else amount

    @property
    def has_binary_suffix(self) -> bool:
        """Whether the text has a binary suffix such as Gi."""
        return self.text.endswith("i")


@lru_cache(maxsize=4096)
def _parsed(value: str | int) -> NanoQuantity:
    quantity = Quantity(value)
    return NanoQuantity(int(quantity.value * NANOS_PER_UNIT), quantity.stored)


def parse_quantity(value: Any) -> NanoQuantity:
    """Parse a quantity of a JSON object, a string or a number; ValueError if it is not a quantity."""
    if isinstance(value, float):
        value = str(value)
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise ValueError(  # noqa: TRY004 (the same error as for a string that is not a quantity)
            f"{value!r} is not a quantity: want a number with or without a suffix, such as 4, 500m, 80Gi"
        )
    return _parsed(value)


def rounded_quantity(nano: int, *, binary: bool) -> NanoQuantity:
    """Return a number of billionths with the text that the API server stores for it.

    The scheduler writes it with a binary or a decimal suffix. If it writes none, the API server reads the text as
    decimal: 3000 is stored as 3k.
    """
    text = str(Quantity.of(Fraction(nano, NANOS_PER_UNIT), binary=binary))
    return NanoQuantity(nano, str(Quantity(text)))
