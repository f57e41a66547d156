"""What all compiled expressions about a device have in common: their costs, and a run with its errors.

Source: k8s.io/dynamic-resource-allocation, package cel.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from dra_sdk.cel.checker import Checked
from dra_sdk.cel.device import DeviceView
from dra_sdk.cel.errors import CelCostError, CelRuntimeError, CelTooCostlyError, CelTooLongError
from dra_sdk.cel.estimate import estimate
from dra_sdk.cel.frame import Frame
from dra_sdk.cel.plan import plan
from dra_sdk.cel.values import CostLimitError, EvaluationError

MAX_LENGTH: Final = 10 * 1024
"""The longest expression that the API server accepts, in bytes."""
MAX_COST: Final = 1_000_000
"""What an expression may cost: at worst, for the API server, and for each device, for the scheduler."""


class Expression:
    """A compiled expression. It keeps no state of its evaluations, so that any number of threads can share it."""

    def __init__(self, expression: str, checked: Checked) -> None:
        self.expression = expression
        self._checked = checked
        self._program = plan(checked)

    @cached_property
    def max_cost(self) -> int:
        """What evaluating it costs at worst, by the rules of the API server."""
        return estimate(self._checked).high

    def check_cost(self, limit: int = MAX_COST) -> None:
        """CelTooCostlyError if the API server would refuse the expression for its estimated cost."""
        if self.max_cost > limit:
            problem = f"too complex: costs up to {self.max_cost}, the limit is {limit}"
            raise CelTooCostlyError(self.expression, problem)

    def _run(self, device: DeviceView, limit: int) -> tuple[Any, int]:
        """Its value for a device, and what that cost; CelRuntimeError, or CelCostError above `limit`."""
        try:
            frame = Frame([self._values(device), *[None] * (self._program.variables - 1)], limit)
            value = self._program.run(frame)
            frame.spend(0)
        except EvaluationError as error:
            raise CelRuntimeError(self.expression, str(error)) from None
        except CostLimitError:
            raise CelCostError(self.expression, f"actual cost limit exceeded: more than {limit}") from None
        return value, frame.cost

    def _values(self, device: DeviceView) -> dict[str, Any]:
        """What `device` is in the expression; EvaluationError where it cannot be."""
        return device.values()


def check_length(expression: str) -> None:
    """CelTooLongError above 10 KiB."""
    length = len(expression.encode())
    if length > MAX_LENGTH:
        raise CelTooLongError(expression, f"the expression has {length} bytes, at most {MAX_LENGTH} are allowed")
