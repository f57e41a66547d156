"""Compiled expressions that select devices.

Source: resource.k8s.io/v1 CELDeviceSelector and k8s.io/dynamic-resource-allocation, package cel.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from dra_sdk.cel.checker import Checked, check
from dra_sdk.cel.device import DeviceView
from dra_sdk.cel.environment import Features, environment
from dra_sdk.cel.errors import CelCostError, CelRuntimeError, CelTooCostlyError, CelTooLongError
from dra_sdk.cel.estimate import estimate
from dra_sdk.cel.frame import Frame
from dra_sdk.cel.parser import parse
from dra_sdk.cel.plan import plan
from dra_sdk.cel.values import CostLimitError, EvaluationError, type_of

MAX_LENGTH: Final = 10 * 1024
"""The longest expression that the API server accepts, in bytes."""
MAX_COST: Final = 1_000_000
"""What an expression may cost: at worst, for the API server, and for each device, for the scheduler."""

_EVERYTHING: Final = Features()


class Outcome(NamedTuple):
    """What an evaluation found and what it cost."""

    match: bool
    cost: int


class Selector:
    """A compiled expression. It keeps no state of its evaluations, so that any number of threads can share it."""

    def __init__(self, expression: str, features: Features) -> None:
        self.expression = expression
        self.features = features
        self._checked: Checked = check(expression, parse(expression), environment(features))
        self._program = plan(self._checked)

    @cached_property
    def max_cost(self) -> int:
        """What evaluating it costs at worst, by the rules of the API server."""
        return estimate(self._checked).high

    def check_cost(self, limit: int = MAX_COST) -> None:
        """CelTooCostlyError if the API server would refuse the expression for its estimated cost."""
        if self.max_cost > limit:
            problem = f"too complex: costs up to {self.max_cost}, the limit is {limit}"
            raise CelTooCostlyError(self.expression, problem)

    def matches(self, device: DeviceView) -> bool:
        """Whether the expression selects a device; CelRuntimeError if it cannot tell."""
        return self.evaluate(device).match

    def evaluate(self, device: DeviceView, limit: int = MAX_COST) -> Outcome:
        """The same with what it cost; CelCostError once that is more than `limit`."""
        try:
            frame = Frame([self._values(device), *[None] * (self._program.variables - 1)], limit)
            match = self._program.run(frame)
            frame.spend(0)
        except EvaluationError as error:
            raise CelRuntimeError(self.expression, str(error)) from None
        except CostLimitError:
            raise CelCostError(self.expression, f"actual cost limit exceeded: more than {limit}") from None
        if not isinstance(match, bool):
            raise CelRuntimeError(self.expression, f"the result is {type_of(match).name}, want bool")
        return Outcome(match, frame.cost)

    def _values(self, device: DeviceView) -> dict[str, Any]:
        if device.lists and not self.features.list_type_attributes:
            raise EvaluationError(f"attribute {device.lists[0]}: unsupported attribute value")
        return device.values()


def compile(expression: str, features: Features = _EVERYTHING) -> Selector:  # noqa: A001 (the word for it)
    """A selector, compiled once for each expression; CelCompileError says where an expression is wrong.

    It is CelTooLongError above 10 KiB. The estimated cost is not judged: see `Selector.check_cost`.
    """
    length = len(expression.encode())
    if length > MAX_LENGTH:
        raise CelTooLongError(expression, f"the expression has {length} bytes, at most {MAX_LENGTH} are allowed")
    return _compiled(expression, features)


@lru_cache(maxsize=1024)
def _compiled(expression: str, features: Features) -> Selector:
    return Selector(expression, features)
