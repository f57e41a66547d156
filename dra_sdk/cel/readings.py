"""What an expression reads of a device: the attributes and capacities it names, and their values.

Only for explanations: it evaluates parts of an expression one after the other, which is slower than the expression.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final

from dra_sdk.cel.checker import Checked
from dra_sdk.cel.device import DeviceView
from dra_sdk.cel.expression import MAX_COST
from dra_sdk.cel.frame import Frame
from dra_sdk.cel.plan import Program, plan
from dra_sdk.cel.syntax import Bind, Call, Fold, Ident, Literal, Node, Select
from dra_sdk.cel.values import MISSING, CostLimitError, EvaluationError, Optional

_INDICES: Final = frozenset({"_[_]", "_[?_]", "_?._"})
_MAX_SHOWN: Final = 64
_NOTHING: Final = object()
_DOMAIN_LINKS: Final = 3  # device.attributes["domain"].name
Links = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """One place of the device that was read.

    `path` as in an expression, `name` as in a ResourceSlice (`memory`, `other.example.com/rack`), `value` as text,
    or `missing`; `hint` names what the device has instead; `raw` is the value itself, None where it is missing.
    """

    path: str
    name: str
    value: str
    hint: str = ""
    raw: Any = None

    @property
    def missing(self) -> bool:
        """Whether the device has no such value."""
        return self.raw is None

    def __str__(self) -> str:
        return f"{self.name} is {self.value}" + (f" ({self.hint})" if self.hint else "")


@dataclass(frozen=True, slots=True)
class Probe:
    """A place of the device that an expression reads, and how to read it."""

    links: Links
    program: Program

    def read(self, device: DeviceView) -> Reading:
        """What the device has there."""
        return _reading(self.links, _run(self.program, device), device)


def probes(checked: Checked) -> tuple[Probe, ...]:
    """Every attribute, capacity and field of the device that a checked expression names, each once."""
    found: dict[Links, Probe] = {}
    for node, binds in _chains(checked.tree, (), frozenset()):
        links = _links(node, binds)
        if links is not None and links not in found:
            found[links] = Probe(links, _program(checked, node, binds))
    return tuple(found.values())


def culprit(checked: Checked, device: DeviceView, otherwise: int) -> int:
    """The offset of the innermost part that has no value for a device, or `otherwise`."""
    return _culprit(checked, checked.tree, (), device) or otherwise


def _culprit(checked: Checked, node: Node, binds: tuple[Bind, ...], device: DeviceView) -> int | None:
    if _value(checked, node, binds, device) is not _NOTHING:
        return None
    inside = (*binds, node) if isinstance(node, Bind) else binds
    below = [node.result] if isinstance(node, Bind) else [node.items] if isinstance(node, Fold) else node.children()
    for each in below:
        if (found := _culprit(checked, each, inside, device)) is not None:
            return found
    return node.offset


def _chains(node: Node, binds: tuple[Bind, ...], loops: frozenset[str]) -> Iterator[tuple[Node, tuple[Bind, ...]]]:
    """The longest selections that begin at the device, with the bindings they stand in."""
    if _is_link(node):
        if _base(node) is not None and _base(node) not in loops:
            yield node, binds
        return
    if isinstance(node, Bind):
        if not _is_link(node.value):
            yield from _chains(node.value, binds, loops)
        yield from _chains(node.result, (*binds, node), loops)
        return
    if isinstance(node, Fold):
        yield from _chains(node.items, binds, loops)
        loops |= {node.variable, node.variable2, node.accumulator}
    for each in node.children():
        yield from _chains(each, binds, loops)


def _is_link(node: Node) -> bool:
    return isinstance(node, Select) or (isinstance(node, Call) and node.function in _INDICES)


def _base(node: Node) -> str | None:
    """The variable that a selection begins at."""
    while _is_link(node):
        node = node.children()[0]
    return node.name if isinstance(node, Ident) else None


def _links(node: Node, binds: tuple[Bind, ...]) -> Links | None:
    """`("attributes", "domain", "name")` of a selection; None where it begins elsewhere or a key is computed."""
    if isinstance(node, Ident):
        if node.name == "device" and not any(each.name == "device" for each in binds):
            return ()
        index = next((at for at in reversed(range(len(binds))) if binds[at].name == node.name), None)
        return None if index is None else _links(binds[index].value, binds[:index])
    if not _is_link(node):
        return None
    operand, key = node.children()[0], node.name if isinstance(node, Select) else _constant(node.children()[1])
    before = _links(operand, binds)
    return None if before is None or key is None else (*before, key)


def _constant(node: Node) -> str | None:
    return str(node.value) if isinstance(node, Literal) and isinstance(node.value, str | int) else None


def _value(checked: Checked, node: Node, binds: tuple[Bind, ...], device: DeviceView) -> Any:
    """The value of a part of an expression, `_NOTHING` where it has none."""
    return _run(_program(checked, node, binds), device)


def _program(checked: Checked, node: Node, binds: tuple[Bind, ...]) -> Program:
    if isinstance(node, Select) and node.test:
        node = Call(node.offset, "_?._", [node.operand, Literal(node.offset, node.name)])
    for each in reversed(binds):
        node = Bind(each.offset, each.name, each.value, node)
    return plan(replace(checked, tree=node))


def _run(program: Program, device: DeviceView) -> Any:
    try:
        return program.run(Frame([device.values(), *[None] * (program.variables - 1)], MAX_COST))
    except (EvaluationError, CostLimitError):
        return _NOTHING


def _reading(links: Links, value: Any, device: DeviceView) -> Reading:
    if isinstance(value, Optional):
        value = value.value
    name = _name(links, device.driver)
    if value is _NOTHING or value is MISSING:
        return Reading(_path(links), name, "missing", _instead(links, device))
    return Reading(_path(links), name, shown(value), raw=value)


def _path(links: Links) -> str:
    quoted = {1} if links and links[0] in {"attributes", "capacity"} else frozenset()
    parts = (f"[{json.dumps(each)}]" if index in quoted else f".{each}" for index, each in enumerate(links))
    return "device" + "".join(parts)


def _name(links: Links, driver: str) -> str:
    if len(links) < _DOMAIN_LINKS:
        return _path(links) if len(links) > 1 else "".join(links) or "device"
    return ".".join(links[2:]) if links[1] == driver else f"{links[1]}/{'.'.join(links[2:])}"


def _instead(links: Links, device: DeviceView) -> str:
    """What the device has under another domain, among the capacities, or under a similar name."""
    if len(links) < _DOMAIN_LINKS:
        return ""
    try:
        fields = device.values()
    except EvaluationError as error:
        return str(error)
    known = [(kind, domain, name) for kind in ("attributes", "capacity") for domain in fields[kind]
             for name in fields[kind][domain]]  # fmt: skip
    same = [each for each in known if each[2] == links[2]]
    similar = get_close_matches(links[2], [each[2] for each in known], n=1)
    nearest = next(iter([*same, *(each for each in known if each[2] in similar)]), None)
    return f"it has {_path(nearest)}" if nearest else ""


def shown(value: Any) -> str:
    """A value as one writes it in an expression, or the keys of a map; shortened where it is long."""
    text = _shown(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


def _shown(value: Any) -> str:
    if isinstance(value, bool | None):
        return json.dumps(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(map(str, value)) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return str(value)
