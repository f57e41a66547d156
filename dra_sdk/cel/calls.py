"""The steps that call a function: which overload, with which operands, at which price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from dra_sdk.cel.frame import Constant, Failed, Frame, Step
from dra_sdk.cel.library.functions import Overload
from dra_sdk.cel.values import EvaluationError, Semver, equal, fits

Dispatch = Callable[[list[Any]], tuple[Any, int]]
"""Calls a function with operands; gives its value and its cost."""

#: Kubernetes knows the price of these only where the types decide which overload is called; else they cost 1.
_PRICED_BY_OVERLOAD: Final = frozenset(
    {"_+_", "_<_", "_<=_", "_>_", "_>=_", "@in", "sort", "@sortByAssociatedKeys", "string", "bytes"}
)


def direct(overload: Overload) -> Dispatch:
    """The overload that the types decided for."""

    def run(args: list[Any]) -> tuple[Any, int]:
        value = overload.run(*args)
        return value, _cost(overload, args, value)

    return run


def dynamic(overloads: Sequence[Overload]) -> Dispatch:
    """The overload that the values decide for, where types were not known before."""
    nominal = len(overloads) > 1 and overloads[0].function in _PRICED_BY_OVERLOAD

    def run(args: list[Any]) -> tuple[Any, int]:
        for each in overloads:
            if each.loose or all(map(fits, args, each.params)):
                value = each.run(*args)
                return value, 1 if nominal else _cost(each, args, value)
        raise EvaluationError("no such overload")

    return run


def _cost(overload: Overload, args: list[Any], value: Any) -> int:
    price = overload.price.actual
    return price if isinstance(price, int) else price(args, value)


def dispatched(dispatch: Dispatch, steps: Sequence[Step]) -> Step:
    """A call whose price depends on its operands."""

    def run(frame: Frame) -> Any:
        value, cost = dispatch([each(frame) for each in steps])
        frame.spend(cost)
        return value

    return run


def fixed(function: Callable[..., Any], price: int, steps: Sequence[Step]) -> Step:
    """A call of one certain function at a fixed price."""

    def run(frame: Frame) -> Any:
        values = [each(frame) for each in steps]
        frame.cost += price
        return function(*values)

    return run


def precomputed(dispatch: Dispatch, args: list[Any]) -> Step:
    """A call such as `quantity("1Gi")`, which costs the same each time although it is made only once."""
    try:
        value, cost = dispatch(args)
    except EvaluationError as error:
        value, cost = Failed(error), 1

    def run(frame: Frame) -> Any:
        frame.spend(cost)
        if isinstance(value, Failed):
            raise value.error
        return value

    return run


def is_set(items: Any) -> bool:
    """Whether Kubernetes tests membership in this constant with one look, free of cost."""
    simple = (bool, int, float, str)
    return isinstance(items, list) and all(isinstance(each, simple) for each in items)


def member(item: Step, items: Sequence[Any]) -> Step:
    """`item in items` for such a constant."""
    if not items:
        return Constant(value=False)

    def run(frame: Frame) -> bool:
        wanted = item(frame)
        if isinstance(wanted, Semver):
            raise EvaluationError("a version cannot be looked up in a list of other constants")
        return any(equal(each, wanted) for each in items)

    return run
