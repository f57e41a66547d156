"""Quantities as whole numbers of 10⁻⁹, which add and compare at the speed of integers.

Kubernetes knows nothing finer than one billionth, so this is exact. Source: k8s.io/apimachinery, type Quantity.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, NamedTuple

from dra_sdk.model.quantity import Quantity

UNIT: Final = 10**9
MILLI: Final = UNIT // 1000
"""A whole, and a thousandth of it."""
LARGEST: Final = 2**63 - 1
"""The scheduler calculates in whole numbers, or in thousandths, up to this one."""


class Amount(NamedTuple):
    """A quantity: `nano` billionths, and its canonical text such as `80Gi`."""

    nano: int
    text: str

    @property
    def whole(self) -> int:
        """As a whole number, rounded away from zero."""
        return -(-self.nano // UNIT) if self.nano > 0 else self.nano // UNIT

    @property
    def thousandths(self) -> int | None:
        """As a whole number of thousandths; None if it is none, or one that is too large."""
        found, rest = divmod(self.nano, MILLI)
        return None if rest or abs(found) > LARGEST else found

    @property
    def binary(self) -> bool:
        """Whether it is written with a binary suffix such as Gi."""
        return self.text.endswith("i")


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


def written(nano: int, *, binary: bool) -> Amount:
    """A number of billionths, whole numbers of which are written with binary suffixes or with decimal ones.

    So the scheduler writes them; the API server reads what has no suffix then as decimal, and stores 3000 as 3k.
    """
    text = str(Quantity.of(Fraction(nano, UNIT), binary=binary))
    return Amount(nano, str(Quantity(text)))
