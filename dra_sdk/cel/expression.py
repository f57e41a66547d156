"""Compiled expressions: selectors and derived attributes of devices, and expressions about other objects.

```python
selector = compile('device.attributes["gpu.example.com"].model == "a100"')
selector.matches(DeviceView.of(device, driver="gpu.example.com"))

derived = compile_derived('device.attributes["gpu.example.com"].model.lowerAscii()')
derived.attribute(DeviceView.of(device, driver="gpu.example.com"))  # {"string": "a100"}
```
Source: resource.k8s.io/v1 CELDeviceSelector, and DeviceDerivedAttribute (KEP-6080, 1.37);
k8s.io/dynamic-resource-allocation, cel/compile.go.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from dra_sdk.cel import types
from dra_sdk.cel.checker import Checked, check, check_any
from dra_sdk.cel.device import DeviceView
from dra_sdk.cel.environment import Environment, Features, environment
from dra_sdk.cel.errors import (
    CelCompileError,
    CelCostError,
    CelPackageError,
    CelRuntimeError,
    CelTooCostlyError,
    CelTooLongError,
)
from dra_sdk.cel.estimate import estimate
from dra_sdk.cel.frame import EvaluationFrame
from dra_sdk.cel.parser import parse
from dra_sdk.cel.plan import plan
from dra_sdk.cel.syntax import Expr
from dra_sdk.cel.types import Type, TypeKind
from dra_sdk.cel.values import CostLimitError, EvaluationError, MissingPackageError, Semver, UInt, type_of

MAX_LENGTH: Final = 10 * 1024
"""The longest expression that the API server accepts, in bytes."""
MAX_COST: Final = 1_000_000
"""What an expression may cost: at worst, for the API server; for each device, for the scheduler."""

Check = Callable[[str, Expr, Environment], Checked]
"""Checks the types of an expression: as a condition, or of any type."""
_ALL_FEATURES: Final = Features()
_SCALARS: Final = frozenset({types.BOOL, types.INT, types.STRING, types.SEMVER, types.DYN, types.ANY})
#: The field of a DeviceAttribute for each type of value.
_FIELDS: Final[Mapping[type, str]] = {bool: "bool", int: "int", str: "string", Semver: "version"}


class Evaluation(NamedTuple):
    """The result of evaluating a selector on a device.

    match: whether the selector selects the device.
    cost: what the evaluation cost, as Kubernetes counts it.
    """

    match: bool
    cost: int


class Expression:
    """A compiled expression. It keeps no state of its evaluations, so any number of threads can share it.

    expression: the source text.
    """

    def __init__(self, expression: str, environment: Environment, check: Check) -> None:
        self.expression = expression
        try:
            tree = parse(expression, since_1_37=environment.since_1_37)
            self._checked = check(expression, tree, environment)
            self._program = plan(self._checked)
        except MissingPackageError as error:
            raise CelPackageError(expression, str(error)) from None
        except RecursionError:
            raise CelCompileError(expression, _too_deep()) from None

    @cached_property
    def max_cost(self) -> int:
        """What an evaluation costs at worst, by the rules of the API server."""
        try:
            return estimate(self._checked).high
        except RecursionError:
            raise CelCompileError(self.expression, _too_deep()) from None

    def check_cost(self, limit: int = MAX_COST) -> None:
        """Raise CelTooCostlyError if the API server would refuse the expression for its estimated cost."""
        if self.max_cost > limit:
            problem = f"too complex: costs up to {self.max_cost}, the limit is {limit}"
            raise CelTooCostlyError(self.expression, problem)

    def _run(self, subject: Any, limit: int) -> tuple[Any, int]:
        """Return the value for a subject and its cost; CelRuntimeError, or CelCostError above `limit`."""
        try:
            frame = EvaluationFrame([self._variable(subject), *[None] * (self._program.variables - 1)], limit)
            value = self._program.run(frame)
            frame.spend(0)
        except EvaluationError as error:
            raise CelRuntimeError(self.expression, str(error)) from None
        except CostLimitError as error:
            raise CelCostError(self.expression, str(error)) from None
        except MissingPackageError as error:
            raise CelPackageError(self.expression, str(error)) from None
        except RecursionError:
            raise CelRuntimeError(self.expression, _too_deep()) from None
        return value, frame.cost

    def _variable(self, subject: Any) -> Any:
        """Return the value of the variable; EvaluationError if the subject has none."""
        return subject.values()


class ObjectExpression(Expression):
    """A compiled expression about an object of JSON, in an `object_environment`."""

    def value(self, obj: Any, limit: int = MAX_COST) -> Any:
        """Return the value for an object; CelRuntimeError if there is none, CelCostError if it costs too much."""
        return self._run(obj, limit)[0]

    def _variable(self, subject: Any) -> Any:
        return subject


class Selector(Expression):
    """A compiled expression that selects devices.

    features: the features it was compiled for.
    """

    def __init__(self, expression: str, features: Features) -> None:
        super().__init__(expression, environment(features), check)
        self.features = features

    def matches(self, device: DeviceView) -> bool:
        """Return whether the expression selects a device; CelRuntimeError if it has no answer."""
        return self.evaluate(device).match

    def evaluate(self, device: DeviceView, limit: int = MAX_COST) -> Evaluation:
        """Return whether the expression selects a device, and the cost of that; CelCostError above `limit`."""
        match, cost = self._run(device, limit)
        if not isinstance(match, bool):
            raise CelRuntimeError(self.expression, f"the result is {type_of(match).name}, want bool")
        return Evaluation(match, cost)

    def _variable(self, subject: DeviceView) -> dict[str, Any]:
        if subject.lists and not self.features.list_type_attributes:
            raise EvaluationError(f"attribute {subject.lists[0]}: unsupported attribute value")
        return subject.values()


class DerivedAttribute(Expression):
    """A compiled expression that computes an attribute of a device for the constraints of a claim."""

    def __init__(self, expression: str, features: Features) -> None:
        super().__init__(expression, environment(features), check_any)
        kind, lists = self._checked.types[self._checked.tree], features.list_type_attributes
        if kind not in _SCALARS and not (lists and kind.kind is TypeKind.LIST and kind.params[0] in _SCALARS):
            problem = _wrong_attribute_type(kind, lists=lists)
            raise CelCompileError.at(expression, problem, self._checked.tree.offset)

    def attribute(self, device: DeviceView, limit: int = MAX_COST) -> dict[str, Any]:
        """Return the DeviceAttribute for a device as JSON has it, such as `{"ints": [0, 1]}`.

        CelRuntimeError if the expression has no value for the device or one that no attribute can have, CelCostError
        if it costs more than `limit`.
        """
        value, _ = self._run(device, limit)
        try:
            return _attribute(value)
        except EvaluationError as error:
            raise CelRuntimeError(self.expression, str(error)) from None


def compile(expression: str, features: Features = _ALL_FEATURES) -> Selector:  # noqa: A001 (the field's word)
    """Compile a selector, once for each expression; CelCompileError says where an expression is wrong.

    An expression above 10 KiB raises CelTooLongError. The estimated cost is not checked: see `Expression.check_cost`.
    """
    _check_length(expression)
    return _selector(expression, features)


def compile_derived(expression: str, features: Features = _ALL_FEATURES) -> DerivedAttribute:
    """Compile a derived attribute, once for each expression; errors are those of `compile`."""
    _check_length(expression)
    return _derived_attribute(expression, features)


@lru_cache(maxsize=1024)
def _selector(expression: str, features: Features) -> Selector:
    return Selector(expression, features)


@lru_cache(maxsize=1024)
def _derived_attribute(expression: str, features: Features) -> DerivedAttribute:
    return DerivedAttribute(expression, features)


def _check_length(expression: str) -> None:
    length = len(expression.encode(errors="surrogatepass"))
    if length > MAX_LENGTH:
        raise CelTooLongError(expression, f"the expression has {length} bytes, at most {MAX_LENGTH} are allowed")


def _too_deep() -> str:
    return f"the expression is nested too deep for this Python process (recursion limit {sys.getrecursionlimit()})"


def _wrong_attribute_type(kind: Type, *, lists: bool) -> str:
    wanted = "a string, int, bool or semver" + (" or to a list of such" if lists else "")
    return f"must evaluate to {wanted}, not {kind}"


def _attribute(value: Any) -> dict[str, Any]:
    kind = _FIELDS.get(type(value))
    if kind is not None:
        return {kind: _json_scalar(value)}
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        raise EvaluationError(f"an attribute cannot be a {_type_name(value)}")
    if not value:
        return {"strings": []}
    kind = _FIELDS.get(type(value[0]))
    for item in value:
        if kind is None or type(item) is not type(value[0]):
            raise EvaluationError(f"a list attribute has items of one scalar type, this has a {_type_name(item)}")
    return {f"{kind}s": [_json_scalar(item) for item in value]}


def _json_scalar(value: Any) -> Any:
    return str(value) if isinstance(value, Semver) else value


def _type_name(value: Any) -> str:
    return "uint" if isinstance(value, UInt) else type_of(value).name
