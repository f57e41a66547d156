"""Compiled expressions that select devices.

Source: resource.k8s.io/v1 CELDeviceSelector and k8s.io/dynamic-resource-allocation, package cel.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

from dra_sdk.cel.checker import check
from dra_sdk.cel.device import DeviceView
from dra_sdk.cel.environment import Features, environment
from dra_sdk.cel.errors import CelRuntimeError
from dra_sdk.cel.expression import MAX_COST, Expression, check_length
from dra_sdk.cel.parser import parse
from dra_sdk.cel.values import EvaluationError, type_of

_EVERYTHING: Final = Features()


class Outcome(NamedTuple):
    """What an evaluation found and what it cost."""

    match: bool
    cost: int


class Selector(Expression):
    """A compiled expression that says which devices it selects."""

    def __init__(self, expression: str, features: Features) -> None:
        super().__init__(expression, check(expression, parse(expression), environment(features)))
        self.features = features

    def matches(self, device: DeviceView) -> bool:
        """Whether the expression selects a device; CelRuntimeError if it cannot tell."""
        return self.evaluate(device).match

    def evaluate(self, device: DeviceView, limit: int = MAX_COST) -> Outcome:
        """The same with what it cost; CelCostError once that is more than `limit`."""
        match, cost = self._run(device, limit)
        if not isinstance(match, bool):
            raise CelRuntimeError(self.expression, f"the result is {type_of(match).name}, want bool")
        return Outcome(match, cost)

    def _values(self, device: DeviceView) -> dict[str, Any]:
        if device.lists and not self.features.list_type_attributes:
            raise EvaluationError(f"attribute {device.lists[0]}: unsupported attribute value")
        return device.values()


def compile(expression: str, features: Features = _EVERYTHING) -> Selector:  # noqa: A001 (the word for it)
    """A selector, compiled once for each expression; CelCompileError says where an expression is wrong.

    It is CelTooLongError above 10 KiB. The estimated cost is not judged: see `Selector.check_cost`.
    """
    check_length(expression)
    return _compiled(expression, features)


@lru_cache(maxsize=1024)
def _compiled(expression: str, features: Features) -> Selector:
    return Selector(expression, features)
