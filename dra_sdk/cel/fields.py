"""The fields of a device that an expression accesses, and their values, for explanations.

Parts of an expression are evaluated one after the other here, which is slower than evaluating the expression.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dra_sdk.cel.checker import Checked
from dra_sdk.cel.device import DeviceView
from dra_sdk.cel.expression import MAX_COST
from dra_sdk.cel.frame import EvaluationFrame
from dra_sdk.cel.plan import INDICES, Program, plan
from dra_sdk.cel.syntax import Bind, CallNode, Comprehension, Expr, Ident, Literal, Select
from dra_sdk.cel.values import MISSING, CostLimitError, EvaluationError, Optional
from dra_sdk.texts import closest

_MAX_SHOWN: Final = 64
_NO_VALUE: Final = object()
_DOMAIN_PATH: Final = 3  # device.attributes["domain"].name
Path = tuple[str, ...]
"""The names that lead to a field, such as `("attributes", "gpu.example.com", "model")`."""


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A field of a device with its value.

    path: the field as an expression writes it.
    name: the field as a ResourceSlice names it, such as `memory` or `other.example.com/rack`.
    text: the value as text, `missing` if the device has no such field.
    hint: what the device has instead of a missing field, else empty.
    instead: that field, as an expression writes it, if it has the same name under another domain.
    value: the value itself, None if it is missing.
    """

    path: str
    name: str
    text: str
    hint: str = ""
    value: Any = None
    instead: str = ""

    @property
    def missing(self) -> bool:
        """Whether the device has no such field."""
        return self.value is None

    def __str__(self) -> str:
        return f"{self.name} is {self.text}" + (f" ({self.hint})" if self.hint else "")


@dataclass(frozen=True, slots=True)
class FieldAccess:
    """A field of the device that an expression accesses.

    path: the names that lead to it.
    program: evaluates it.
    """

    path: Path
    program: Program

    def on(self, device: DeviceView) -> FieldValue:
        """Return the field of one device."""
        value = _run(self.program, device)
        if isinstance(value, Optional):
            value = value.value
        path, name = _expression(self.path), _name(self.path, device.driver)
        if value is _NO_VALUE or value is MISSING:
            hint, instead = _similar(self.path, device)
            return FieldValue(path, name, "missing", hint, instead=instead)
        return FieldValue(path, name, format_value(value), value=value)


def field_accesses(checked: Checked) -> tuple[FieldAccess, ...]:
    """Return every attribute, capacity and field of the device that a checked expression names, each once."""
    accesses: dict[Path, FieldAccess] = {}
    for node, binds in _selections(checked.tree, (), frozenset()):
        path = _path(node, binds)
        if path is not None and path not in accesses:
            accesses[path] = FieldAccess(path, _program(checked, node, binds))
    return tuple(accesses.values())


def failing_offset(checked: Checked, device: DeviceView, otherwise: int) -> int:
    """Return the offset of the innermost part that has no value for a device, or `otherwise`."""
    return _failing_offset(checked, checked.tree, (), device) or otherwise


def _failing_offset(checked: Checked, node: Expr, binds: tuple[Bind, ...], device: DeviceView) -> int | None:
    if _run(_program(checked, node, binds), device) is not _NO_VALUE:
        return None
    inside = (*binds, node) if isinstance(node, Bind) else binds
    below = (
        [node.result]
        if isinstance(node, Bind)
        else [node.items]
        if isinstance(node, Comprehension)
        else node.children()
    )
    for part in below:
        if (found := _failing_offset(checked, part, inside, device)) is not None:
            return found
    return node.offset


def _selections(node: Expr, binds: tuple[Bind, ...], loops: frozenset[str]) -> Iterator[tuple[Expr, tuple[Bind, ...]]]:
    """Yield the longest selections that begin at a variable, with the bindings around them."""
    if _is_selection(node):
        variable = _variable(node)
        if variable is not None and variable not in loops:
            yield node, binds
        return
    if isinstance(node, Bind):
        if not _is_selection(node.value):
            yield from _selections(node.value, binds, loops)
        yield from _selections(node.result, (*binds, node), loops)
        return
    if isinstance(node, Comprehension):
        yield from _selections(node.items, binds, loops)
        loops |= {node.variable, node.variable2, node.accumulator}
    for child in node.children():
        yield from _selections(child, binds, loops)


def _is_selection(node: Expr) -> bool:
    return isinstance(node, Select) or (isinstance(node, CallNode) and node.function in INDICES)


def _variable(node: Expr) -> str | None:
    """Return the variable that a selection begins at; a leading dot is kept."""
    while _is_selection(node):
        node = node.children()[0]
    return f"{'.' * node.root}{node.name}" if isinstance(node, Ident) else None


def _path(node: Expr, binds: tuple[Bind, ...]) -> Path | None:
    """Return the path of a selection; None if it does not begin at the device, or computes a key."""
    if isinstance(node, Ident):
        shadowed = not node.root and any(bind.name == "device" for bind in binds)
        if node.name == "device" and not shadowed:
            return ()
        index = next((at for at in reversed(range(len(binds))) if binds[at].name == node.name), None)
        return None if index is None else _path(binds[index].value, binds[:index])
    if not _is_selection(node):
        return None
    operand, key = node.children()[0], node.name if isinstance(node, Select) else _constant_key(node.children()[1])
    before = _path(operand, binds)
    return None if before is None or key is None else (*before, key)


def _constant_key(node: Expr) -> str | None:
    return str(node.value) if isinstance(node, Literal) and isinstance(node.value, str | int) else None


def _program(checked: Checked, node: Expr, binds: tuple[Bind, ...]) -> Program:
    if isinstance(node, Select) and node.test:
        node = CallNode(node.offset, "_?._", [node.operand, Literal(node.offset, node.name)])
    for bind in reversed(binds):
        node = Bind(bind.offset, bind.name, bind.value, node)
    return plan(replace(checked, tree=node))


def _run(program: Program, device: DeviceView) -> Any:
    """Return the value of a program, `_NO_VALUE` if it has none."""
    try:
        return program.run(EvaluationFrame([device.values(), *[None] * (program.variables - 1)], MAX_COST))
    except (EvaluationError, CostLimitError):
        return _NO_VALUE


def _expression(path: Path) -> str:
    quoted = {1} if path and path[0] in {"attributes", "capacity"} else frozenset()
    parts = (f"[{json.dumps(part)}]" if index in quoted else f".{part}" for index, part in enumerate(path))
    return "device" + "".join(parts)


def _name(path: Path, driver: str) -> str:
    if len(path) < _DOMAIN_PATH:
        return _expression(path) if len(path) > 1 else "".join(path) or "device"
    return ".".join(path[2:]) if path[1] == driver else f"{path[1]}/{'.'.join(path[2:])}"


def _similar(path: Path, device: DeviceView) -> tuple[str, str]:
    """Return a sentence on what the device has under another domain, among the capacities, or a similar name.

    Also return that field as an expression if it is of the same kind and only its domain differs.
    """
    if len(path) < _DOMAIN_PATH:
        return "", ""
    try:
        fields = device.values()
    except EvaluationError as error:
        return str(error), ""
    known = [(kind, domain, name) for kind in ("attributes", "capacity") for domain in fields[kind]
             for name in fields[kind][domain]]  # fmt: skip
    same = [field for field in known if field[2] == path[2]]
    similar = closest(path[2], [field[2] for field in known])
    nearest = next(iter([*same, *(field for field in known if field[2] == similar)]), None)
    if nearest is None:
        return "", ""
    only_domain_differs = nearest[0] == path[0] and nearest[2:] == path[2:]
    return f"it has {_expression(nearest)}", _expression(nearest) if only_domain_differs else ""


def format_value(value: Any) -> str:
    """Return a value as an expression writes it, or the keys of a map; long text is cut."""
    text = _formatted(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


def _formatted(value: Any) -> str:
    if isinstance(value, bool | None):
        return json.dumps(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(map(str, value)) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_formatted, value)) + "]"
    return str(value)
