"""How a function of CEL is declared: its overloads, each with types, implementation and price."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dra_sdk.cel.cost import NOMINAL, Price
from dra_sdk.cel.types import Type


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function.

    `run` gets the operands, the target of a method first; it raises EvaluationError. A `loose` one looks at the types
    of its operands itself.
    """

    function: str
    params: tuple[Type, ...]
    result: Type
    run: Callable[..., Any]
    method: bool = False
    price: Price = NOMINAL
    loose: bool = False


Library = Mapping[str, tuple[Overload, ...]]
"""The overloads of each function, in the order in which they are tried."""

_Run = Callable[..., Any]


def function(
    name: str, params: Iterable[Type], result: Type, run: Callable[..., Any], price: Price = NOMINAL
) -> Overload:
    """A global function."""
    return Overload(name, tuple(params), result, run, price=price)


def method(
    name: str, params: Iterable[Type], result: Type, run: Callable[..., Any], price: Price = NOMINAL
) -> Overload:
    """A method; the first parameter is its target."""
    return Overload(name, tuple(params), result, run, method=True, price=price)


def gathered(*groups: Iterable[Overload]) -> dict[str, tuple[Overload, ...]]:
    """Overloads by the name of their function, in the order they are declared."""
    found: dict[str, tuple[Overload, ...]] = {}
    for group in groups:
        for each in group:
            found[each.function] = (*found.get(each.function, ()), each)
    return found
