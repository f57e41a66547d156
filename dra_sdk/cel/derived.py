"""Compiled expressions that say what an attribute of a device is to be, for the constraints of a claim.

```python
derived = compile_derived('device.attributes["gpu.example.com"].model.lowerAscii()')
derived.attribute(DeviceView.of(device, driver="gpu.example.com"))  # {"string": "a100"}
```
Source: resource.k8s.io/v1 DeviceDerivedAttribute (KEP-6080); k8s.io/dynamic-resource-allocation, cel/compile.go (1.37).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from dra_sdk.cel import types
from dra_sdk.cel.checker import Checked, check_any
from dra_sdk.cel.device import DeviceView
from dra_sdk.cel.environment import Features, environment
from dra_sdk.cel.errors import CelCompileError, CelRuntimeError
from dra_sdk.cel.expression import MAX_COST, Expression, check_length
from dra_sdk.cel.parser import parse
from dra_sdk.cel.types import Kind, Type
from dra_sdk.cel.values import EvaluationError, Semver, UInt, type_of

_EVERYTHING: Final = Features()
_SCALARS: Final = frozenset({types.BOOL, types.INT, types.STRING, types.SEMVER, types.DYN, types.ANY})
#: Types of values → fields of DeviceAttribute.
_FIELDS: Final[Mapping[type, str]] = {bool: "bool", int: "int", str: "string", Semver: "version"}


class Derived(Expression):
    """A compiled expression that says what an attribute is."""

    def __init__(self, expression: str, features: Features) -> None:
        checked = check_any(expression, parse(expression), environment(features))
        _check_result(checked, lists=features.list_type_attributes)
        super().__init__(expression, checked)

    def attribute(self, device: DeviceView, limit: int = MAX_COST) -> dict[str, Any]:
        """A DeviceAttribute as JSON has it, such as `{"ints": [0, 1]}`.

        CelRuntimeError if the expression has no value for the device or one that no attribute can have, CelCostError
        once that costs more than `limit`.
        """
        value, _ = self._run(device, limit)
        try:
            return _attribute(value)
        except EvaluationError as error:
            raise CelRuntimeError(self.expression, str(error)) from None


def compile_derived(expression: str, features: Features = _EVERYTHING) -> Derived:
    """A derivation, compiled once for each expression; CelCompileError says where an expression is wrong."""
    check_length(expression)
    return _compiled(expression, features)


@lru_cache(maxsize=1024)
def _compiled(expression: str, features: Features) -> Derived:
    return Derived(expression, features)


def _check_result(checked: Checked, *, lists: bool) -> None:
    found = checked.type(checked.tree)
    if found not in _SCALARS and not (lists and _is_list_of_scalars(found)):
        wanted = "a string, int, bool or semver" + (" or to a list of such" if lists else "")
        problem = f"must evaluate to {wanted}, not {found}"
        raise CelCompileError.at(checked.source, problem, checked.tree.offset)


def _is_list_of_scalars(found: Type) -> bool:
    return found.kind is Kind.LIST and found.params[0] in _SCALARS


def _attribute(value: Any) -> dict[str, Any]:
    kind = _FIELDS.get(type(value))
    if kind is not None:
        return {kind: _plain(value)}
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        raise EvaluationError(f"an attribute cannot be a {_name(value)}")
    if not value:
        return {"strings": []}
    kind = _FIELDS.get(type(value[0]))
    for each in value:
        if kind is None or type(each) is not type(value[0]):
            raise EvaluationError(f"a list of an attribute has items of one scalar type, this has a {_name(each)}")
    return {f"{kind}s": [_plain(each) for each in value]}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Semver) else value


def _name(value: Any) -> str:
    return "uint" if isinstance(value, UInt) else type_of(value).name
