"""What the evaluation of a CEL function costs: the estimate before, and the price afterwards.

Source: cel-go's checker/cost.go and interpreter/runtimecost.go and Kubernetes' apiserver library/cost.go (1.36). One
unit is about 50 ns of Go; walking a string costs a tenth of a unit for each character. All figures saturate at 2**64-1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, NamedTuple, Protocol

from dra_sdk.cel.types import Type
from dra_sdk.cel.values import size

MAX: Final = 2**64 - 1
STRING: Final = 0.1
REGEX: Final = 0.25
NEW_LIST: Final = 10
NEW_MAP: Final = 30


def scaled(amount: int, factor: float) -> int:
    """An amount times a factor, rounded up, in the floating-point arithmetic of the Go libraries."""
    product = float(amount) * factor
    return MAX if product >= float(MAX) else ceil(product)


class Range(NamedTuple):
    """From the least to the most that a size or a cost can be."""

    low: int
    high: int

    def plus(self, other: Range) -> Range:
        """The sum."""
        return Range(min(self.low + other.low, MAX), min(self.high + other.high, MAX))

    def times(self, other: Range) -> Range:
        """The product."""
        return Range(min(self.low * other.low, MAX), min(self.high * other.high, MAX))

    def scaled(self, factor: float) -> Range:
        """Times a factor, rounded up."""
        return Range(scaled(self.low, factor), scaled(self.high, factor))

    def union(self, other: Range) -> Range:
        """What covers both."""
        return Range(min(self.low, other.low), max(self.high, other.high))


def exactly(amount: int) -> Range:
    """A range of one figure."""
    return Range(amount, amount)


ANY_SIZE: Final = Range(0, MAX)
ONE: Final = Range(1, 1)


class Site(Protocol):
    """One call, as an estimate sees it. Operands are counted from 0, the target of a method first."""

    @property
    def count(self) -> int:
        """How many operands there are."""

    def size(self, index: int) -> Range:
        """How large an operand can be."""

    def item_size(self, index: int) -> Range:
        """How large an item of an operand that is a list can be, as far as its type tells."""

    def type(self, index: int) -> Type:
        """The type of an operand."""

    def constant(self, index: int) -> Any:
        """The value of an operand that is a literal, else None."""


class Quote(NamedTuple):
    """What a call costs at worst, without its operands, and how large its result can be."""

    cost: Range
    size: Range | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """The cost of one overload: the estimate for a call, and the actual one from its operands and result.

    An `actual` that is a number does not depend on the operands.
    """

    estimate: Callable[[Site], Quote]
    actual: int | Callable[[Sequence[Any], Any], int]


def fixed(cost: int) -> Price:
    """Always the same."""
    return Price(lambda _site: Quote(exactly(cost)), cost)


NOMINAL: Final = fixed(1)


def walk(index: int = 0, factor: float = STRING, *, keeps: bool = False) -> Price:
    """One walk along an operand; with `keeps` the result is about as long as the operand."""

    def estimate(site: Site) -> Quote:
        length = site.size(index)
        return Quote(length.scaled(factor), length if keeps else None)

    return Price(estimate, lambda args, _result: ceil(size(args[index]) * factor))


def smaller() -> Price:
    """A comparison, which ends at the end of the smaller operand."""

    def estimate(site: Site) -> Quote:
        most = min(site.size(0).high, site.size(1).high)
        return Quote(Range(min(most, 1), most).scaled(STRING))

    return Price(estimate, lambda args, _result: ceil(min(size(args[0]), size(args[1])) * STRING))


def search() -> Price:
    """A regular expression, the second operand, applied to the first."""

    def estimate(site: Site) -> Quote:
        text = site.size(0).plus(ONE).scaled(STRING)
        return Quote(text.times(site.size(1).scaled(REGEX)))

    return Price(estimate, lambda args, _result: ceil((1.0 + size(args[0])) * STRING) * ceil(size(args[1]) * REGEX))


def allocating(sizes: Range, factor: float) -> Quote:
    """A new list whose making costs `factor` for each item."""
    return Quote(sizes.scaled(factor).plus(exactly(1 + NEW_LIST)), sizes)


def allocated(items: int, factor: float) -> int:
    """The actual price of such a list."""
    return int(items * factor) + 1 + NEW_LIST
