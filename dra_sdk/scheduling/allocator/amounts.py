"""Quantities as whole numbers of 10⁻⁹, which add and compare at the speed of integers.

Kubernetes knows nothing finer than one billionth, so this is exact. Source: k8s.io/apimachinery, type Quantity.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, NamedTuple

from dra_sdk.model.quantity import Quantity

UNIT: Final = 10**9


class Amount(NamedTuple):
    """A quantity: `nano` billionths, and its canonical text such as `80Gi`."""

    nano: int
    text: str

    @property
    def whole(self) -> int:
        """As a whole number, rounded away from zero."""
        return -(-self.nano // UNIT) if self.nano > 0 else self.nano // UNIT


@lru_cache(maxsize=4096)
def _parsed(value: str | int) -> Amount:
    quantity = Quantity(value)
    return Amount(int(quantity.value * UNIT), str(quantity))


def amount(value: Any) -> Amount:
    """The amount of a quantity as JSON has it (a string or a number); ValueError if it is not one."""
    if isinstance(value, float):
        value = str(value)
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise ValueError(  # noqa: TRY004 (the same error as for a text that is no quantity)
            f"{value!r} is not a quantity: want a number with or without a suffix, such as 4, 500m, 80Gi"
        )
    return _parsed(value)


def whole_binary(value: int) -> Amount:
    """A whole number, written with binary suffixes."""
    return Amount(value * UNIT, str(Quantity.of(Fraction(value), binary=True)))
