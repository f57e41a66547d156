"""What one evaluation of a planned expression works on, and the smallest steps of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dra_sdk.cel.values import CostLimitError, EvaluationError


class Frame:
    """One evaluation: the local variables, the device first, and the cost so far."""

    __slots__ = ("cost", "limit", "variables")

    def __init__(self, variables: list[Any], limit: int) -> None:
        self.variables = variables
        self.cost = 0
        self.limit = limit

    def spend(self, cost: int) -> None:
        """Count a cost that depends on the values; CostLimitError if it is too much."""
        self.cost += cost
        if self.cost > self.limit:
            raise CostLimitError


Step = Callable[[Frame], Any]
"""How to evaluate one expression; raises EvaluationError if it has no value."""


class Constant:
    """A step whose value is known when the expression is compiled."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, _frame: Frame) -> Any:
        """The value, in any evaluation."""
        return self.value


@dataclass(frozen=True, slots=True)
class Failed:
    """What stands for a value that could not be computed; the error comes up where the value is needed."""

    error: EvaluationError


@dataclass(frozen=True, slots=True)
class Lazy:
    """What a variable of `cel.bind` holds until it is first read."""

    step: Step


UNREADY: Final = frozenset({Lazy, Failed})
"""What a variable may hold that is no value."""


def read(frame: Frame, slot: int) -> Any:
    """The value of a variable that holds a Lazy or a Failed."""
    value = frame.variables[slot]
    if isinstance(value, Lazy):
        try:
            value = value.step(frame)
        except EvaluationError as error:
            value = Failed(error)
        frame.variables[slot] = value
    if isinstance(value, Failed):
        raise value.error
    return value
