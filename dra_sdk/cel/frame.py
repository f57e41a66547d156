"""One evaluation of a planned expression: its variables and costs, and the steps that read and select values.

A step is a function of the frame. The steps of this module evaluate names and the selections `a.b`, `a["b"]`, `a.?b`,
`a[?"b"]` and `has(a.b)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from dra_sdk.cel.comparison import Count, find
from dra_sdk.cel.values import (
    MISSING,
    NONE,
    CostLimitError,
    EvaluationError,
    Optional,
    is_list,
    is_number,
    type_of,
)


class EvaluationFrame:
    """One evaluation.

    variables: the values of the variables, the device first.
    limit: the cost at which the evaluation is stopped, and the number of steps that comparisons may take.
    cost: the cost so far, as Kubernetes counts it.
    steps: the steps of comparisons and copies so far, which Kubernetes does not count.
    """

    __slots__ = ("cost", "limit", "steps", "variables")

    def __init__(self, variables: list[Any], limit: int) -> None:
        self.variables = variables
        self.limit = limit
        self.cost = self.steps = 0

    def spend(self, cost: int) -> None:
        """Add a cost that depends on the values; CostLimitError above the limit."""
        self.cost += cost
        if self.cost > self.limit:
            raise CostLimitError(f"actual cost limit exceeded: more than {self.limit}")

    def count(self, steps: int) -> None:
        """Add steps of comparisons and copies; CostLimitError above the limit."""
        self.steps += steps
        if self.steps > self.limit:
            raise CostLimitError(
                f"actual cost limit exceeded: comparing and copying took more than {self.limit} steps, "
                "which Kubernetes does not count"
            )


Step = Callable[[EvaluationFrame], Any]
"""Evaluates one expression; raises EvaluationError if it has no value."""


@dataclass(slots=True, eq=False)
class Constant:
    """A step whose value is known when the expression is compiled.

    value: the value.
    """

    value: Any

    def __call__(self, _frame: EvaluationFrame) -> Any:
        """Return the value."""
        return self.value


@dataclass(frozen=True, slots=True)
class Failure:
    """Stands in a variable for a value that could not be computed.

    error: raised where the value is needed.
    """

    error: EvaluationError


@dataclass(frozen=True, slots=True)
class Lazy:
    """Stands in a variable of `cel.bind` for its value until the variable is first read.

    step: computes the value.
    """

    step: Step


PENDING: Final = frozenset({Lazy, Failure})
"""What a variable may hold that is no value."""


def read(frame: EvaluationFrame, slot: int) -> Any:
    """Return the value of a variable that holds a Lazy or a Failure."""
    value = frame.variables[slot]
    if isinstance(value, Lazy):
        try:
            value = value.step(frame)
        except EvaluationError as error:
            value = Failure(error)
        frame.variables[slot] = value
    if isinstance(value, Failure):
        raise value.error
    return value


def chain(base: Step | int, own: int, keys: Sequence[str]) -> Step:
    """Return the step of selections by constant names, from a variable (its slot) or from the value of a step.

    Each selection costs 1, and the chain as a whole `own`.
    """
    cost = own + len(keys)
    if not isinstance(base, int):
        return _chain_of_step(base, own, keys) if cost else base
    slot = base

    def run(frame: EvaluationFrame) -> Any:
        frame.cost += cost
        value = frame.variables[slot]
        if type(value) in PENDING:
            value = read(frame, slot)
        try:
            for key in keys:
                value = value[key] if isinstance(value, dict) else select(frame.count, value, key)
        except KeyError as error:
            raise EvaluationError(f"no such key: {error.args[0]}") from None
        return value

    return run


def _chain_of_step(base: Step, own: int, keys: Sequence[str]) -> Step:
    def run(frame: EvaluationFrame) -> Any:
        value = base(frame)
        frame.cost += own
        for key in keys:
            value = select(frame.count, value, key)
            # A selection from an empty optional costs nothing.
            frame.cost += value is not NONE
        return value

    return run


def indexed(base: Step, key: Step) -> Step:
    """Return the step of `base[key]`."""

    def run(frame: EvaluationFrame) -> Any:
        value = base(frame)
        frame.cost += 1
        return select(frame.count, value, key(frame))

    return run


def optionally_indexed(base: Step, key: Step) -> Step:
    """Return the step of `base[?key]`, which costs nothing if there is no such key."""

    def run(frame: EvaluationFrame) -> Optional:
        optional = select_optional(frame.count, base(frame), key(frame))
        if optional is not NONE:
            frame.cost += 1
        return optional

    return run


def presence(base: Step, key: str) -> Step:
    """Return the step of `has(base.key)`."""

    def run(frame: EvaluationFrame) -> bool:
        return select_optional(frame.count, base(frame), key) is not NONE

    return run


def select(count: Count, value: Any, key: Any) -> Any:
    """Return `value[key]`, where the value may be an optional; EvaluationError if there is no such key."""
    if isinstance(value, Optional):
        return NONE if value.value is MISSING else select_optional(count, value.value, key)
    if isinstance(value, Mapping):
        return _entry(count, value, key)
    if is_list(value):
        index = _whole(key)
        if not 0 <= index < len(value):
            raise EvaluationError(f"index out of bounds: {index}")
        return value[index]
    raise EvaluationError(f"no such key: {key}")


def select_optional(count: Count, value: Any, key: Any) -> Optional:
    """Return `value[?key]`; a value that is no container has no keys."""
    if isinstance(value, Optional):
        return NONE if value.value is MISSING else select_optional(count, value.value, key)
    if isinstance(value, Mapping):
        try:
            return Optional(_entry(count, value, key))
        except EvaluationError:
            return NONE
    if is_list(value):
        index = _whole(key)
        return Optional(value[index]) if 0 <= index < len(value) else NONE
    return NONE


def _entry(count: Count, value: Mapping[Any, Any], key: Any) -> Any:
    if isinstance(key, str):
        try:
            # Not `get`: an unknown domain of a device is an empty map.
            return value[key]
        except KeyError:
            raise EvaluationError(f"no such key: {key}") from None
    found = find(count, value, key)
    if found is MISSING:
        raise EvaluationError(f"no such key: {key}")
    return found


def _whole(key: Any) -> int:
    if not is_number(key) or not isfinite(key) or key != int(key):
        raise EvaluationError(f"unsupported index type '{type_of(key).name}' in list")
    return int(key)
