"""Declaring functions of CEL: the types of each overload, how it is evaluated, and what that costs.

A cost is known twice: an estimate of the worst case, from the types and sizes of the operands, and the actual cost once
the operands are there. One unit is about 50 ns of Go. Walking a string costs a tenth of a unit for each character. All
figures saturate at 2**64-1. Source: cel-go, checker/cost.go and interpreter/runtimecost.go; Kubernetes' apiserver,
library/cost.go (1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from math import ceil
from typing import Any, Final, NamedTuple, Protocol

from dra_sdk.cel.types import Type
from dra_sdk.cel.values import EvaluationError, size

MAX: Final = 2**64 - 1
STRING: Final = 0.1
"""The cost of walking one character of a string."""
REGEX: Final = 0.25
"""The cost of one character of a regular expression, for each unit of the text."""
NEW_LIST: Final = 10
NEW_MAP: Final = 30


def scaled(amount: int, factor: float) -> int:
    """Return an amount times a factor, rounded up, in the floating-point arithmetic of the Go libraries."""
    product = float(amount) * factor
    return MAX if product >= float(MAX) else ceil(product)


class Range(NamedTuple):
    """The least and the most that a size or a cost can be (CostEstimate and SizeEstimate of cel-go).

    low: the least.
    high: the most; MAX where there is no limit.
    """

    low: int
    high: int

    def plus(self, other: Range) -> Range:
        """Return the sum."""
        return Range(min(self.low + other.low, MAX), min(self.high + other.high, MAX))

    def times(self, other: Range) -> Range:
        """Return the product."""
        return Range(min(self.low * other.low, MAX), min(self.high * other.high, MAX))

    def scaled(self, factor: float) -> Range:
        """Return the range times a factor, rounded up."""
        return Range(scaled(self.low, factor), scaled(self.high, factor))

    def union(self, other: Range) -> Range:
        """Return the smallest range that contains both."""
        return Range(min(self.low, other.low), max(self.high, other.high))


def exactly(amount: int) -> Range:
    """Return the range of one figure."""
    return Range(amount, amount)


ANY_SIZE: Final = Range(0, MAX)
ONE: Final = Range(1, 1)


class CallSite(Protocol):
    """One call as an estimate sees it. Operands are counted from 0, the target of a method first."""

    @property
    def count(self) -> int:
        """How many operands there are."""

    def size(self, index: int) -> Range:
        """Return how large an operand can be."""

    def known_size(self, index: int) -> Range | None:
        """Return how large an operand can be as far as an earlier estimate found it, else None."""

    def item_size(self, index: int) -> Range:
        """Return how large an item of an operand that is a list can be, as far as its type says."""

    def type(self, index: int) -> Type:
        """Return the type of an operand."""

    def constant(self, index: int) -> Any:
        """Return the value of an operand that is a literal, else None."""


class CallEstimate(NamedTuple):
    """What a call costs at worst.

    cost: the cost without that of the operands.
    size: how large the result can be; None if nothing is known.
    """

    cost: Range
    size: Range | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one overload.

    estimate: gives the estimate for one call.
    actual: the actual cost, or a function that computes it from the operands and the result.
    """

    estimate: Callable[[CallSite], CallEstimate]
    actual: int | Callable[[Sequence[Any], Any], int]


def fixed(cost: int) -> Cost:
    """Return a cost that is always the same."""
    return Cost(lambda _site: CallEstimate(exactly(cost)), cost)


NOMINAL: Final = fixed(1)


def walk(index: int = 0, factor: float = STRING, *, keeps_size: bool = False) -> Cost:
    """Return the cost of one walk along an operand; with `keeps_size` the result is about as long as the operand."""

    def estimate(site: CallSite) -> CallEstimate:
        length = site.size(index)
        return CallEstimate(length.scaled(factor), length if keeps_size else None)

    return Cost(estimate, lambda args, _result: ceil(size(args[index]) * factor))


def _estimate_smaller(site: CallSite) -> CallEstimate:
    most = min(site.size(0).high, site.size(1).high)
    return CallEstimate(Range(min(most, 1), most).scaled(STRING))


def smaller_size(args: Sequence[Any], _result: Any) -> int:
    """Return the actual cost of a comparison, which ends at the end of the smaller operand."""
    return ceil(min(size(args[0]), size(args[1])) * STRING)


COMPARISON: Final = Cost(_estimate_smaller, smaller_size)


def _estimate_search(site: CallSite) -> CallEstimate:
    text = site.size(0).plus(ONE).scaled(STRING)
    return CallEstimate(text.times(site.size(1).scaled(REGEX)))


def _search(args: Sequence[Any], _result: Any) -> int:
    return ceil((1.0 + size(args[0])) * STRING) * ceil(size(args[1]) * REGEX)


SEARCH: Final = Cost(_estimate_search, _search)
"""The cost of applying a regular expression, the second operand, to the first."""


def estimate_new_list(sizes: Range, factor: float) -> CallEstimate:
    """Return the estimate for a function that makes a list at a cost of `factor` for each item."""
    return CallEstimate(sizes.scaled(factor).plus(exactly(1 + NEW_LIST)), sizes)


def cost_of_new_list(items: int, factor: float) -> int:
    """Return the actual cost of such a list."""
    return int(items * factor) + 1 + NEW_LIST


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function.

    function: the name of the function.
    params: the types of the operands, the target of a method first.
    result: the type of the result.
    run: evaluates a call from its operands; raises EvaluationError if the call has no value.
    cost: what a call costs.
    method: whether it is called on a target.
    loose: whether `run` looks at the types of its operands itself.
    counted: whether `run` takes a function first that counts its steps (see `comparison`).
    """

    function: str
    params: tuple[Type, ...]
    result: Type
    run: Callable[..., Any]
    cost: Cost = NOMINAL
    _: KW_ONLY
    method: bool = False
    loose: bool = False
    counted: bool = False


Functions = Mapping[str, tuple[Overload, ...]]
"""The overloads of each function, in the order in which they are tried."""
method: Final = partial(Overload, method=True)
"""Declares a method; the first parameter is its target."""


def parsed(parse: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for which the ValueError of a parser means that the call has no value."""

    def run(*args: Any) -> Any:
        try:
            return parse(*args)
        except ValueError as error:
            raise EvaluationError(str(error)) from None

    return run


def accepted(parse: Callable[..., Any]) -> Callable[..., bool]:
    """Return a function that says whether a parser accepts a text."""

    def run(*args: Any) -> bool:
        try:
            parse(*args)
        except ValueError:
            return False
        return True

    return run


def by_name(overloads: Iterable[Overload]) -> dict[str, tuple[Overload, ...]]:
    """Return overloads by the name of their function, in the order in which they are declared."""
    named: dict[str, tuple[Overload, ...]] = {}
    for overload in overloads:
        named[overload.function] = (*named.get(overload.function, ()), overload)
    return named
