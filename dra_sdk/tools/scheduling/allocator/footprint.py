"""What an expression looks at, so that devices that are equal there need not be asked one by one.

Real devices differ in a serial number or a bus address that selectors rarely look at. An expression that names what
it reads (`device.attributes["gpu.example.com"].model`) has the same answer for all devices that are equal there; one
that looks at a map as a whole, or computes a name, has to be evaluated for every content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dra_sdk.cel import CelError
from dra_sdk.cel.parser import parse
from dra_sdk.cel.syntax import Bind, Call, Comprehension, Ident, Literal, Node, Select
from dra_sdk.tools.scheduling.allocator.devices import Content

Place = tuple[str, str, str]
"""`attributes` or `capacity`, domain and name."""
Links = tuple[str, ...]
Scope = Mapping[str, Links | None]
"""Variables: what of the device they stand for, None for anything else."""

_INDICES: Final = frozenset({"_[_]", "_[?_]", "_?._"})
_PLACE: Final = 3
#: The variables that a name with a leading dot can mean.
_ROOT: Final[Scope] = {"device": ()}
#: Every content has them in common with its equals.
_ALWAYS: Final = frozenset({("driver",), ("allowMultipleAllocations",)})


class _WholeError(Exception):
    """The expression looks at more than single places."""


def places(expression: str) -> tuple[Place, ...] | None:
    """The places that an expression can look at; None if it may look at everything, or is no expression."""
    try:
        return tuple(sorted(set(_places(parse(expression), _ROOT))))
    except (_WholeError, CelError):
        return None


def _places(node: Node, scope: Scope) -> Iterator[Place]:
    if isinstance(node, Bind):
        links = _links(node.value, scope)
        if links is None:
            yield from _places(node.value, scope)
        yield from _places(node.result, {**scope, node.name: links})
        return
    if isinstance(node, Comprehension):
        yield from _places(node.items, scope)
        scope = {**scope, **dict.fromkeys((node.variable, node.variable2, node.accumulator))}
        for each in node.children()[1:]:
            yield from _places(each, scope)
        return
    links = _links(node, scope)
    if links is None:
        for each in node.children():
            yield from _places(each, scope)
    elif len(links) >= _PLACE:
        yield links[0], links[1], links[2]
    elif links not in _ALWAYS:
        raise _WholeError


def _links(node: Node, scope: Scope) -> Links | None:
    """`("attributes", "domain", "name")` of a selection by constant names; None if it does not begin at the device."""
    if isinstance(node, Ident):
        return _ROOT.get(node.name) if node.root else scope.get(node.name)
    if isinstance(node, Select):
        before, key = _links(node.operand, scope), node.name
    elif isinstance(node, Call) and node.function in _INDICES:
        operand, index = node.operands()
        before = _links(operand, scope)
        if before is None or len(before) >= _PLACE:
            return None
        if not isinstance(index, Literal) or not isinstance(index.value, str):
            raise _WholeError
        key = index.value
    else:
        return None
    return None if before is None else (*before, key)


class Footprint:
    """Contents that are equal in some places, each represented by the first of them that was seen."""

    __slots__ = ("_known", "_places", "_representatives")

    def __init__(self, found: Sequence[Place] | None) -> None:
        self._places = found
        self._representatives: dict[Any, Content] = {}
        self._known: dict[Content, Content] = {}

    def of(self, content: Content) -> Content:
        """A content that looks the same in the places of this footprint."""
        found = self._known.get(content)
        if found is None:
            found = self._known[content] = self._representative(content)
        return found

    def _representative(self, content: Content) -> Content:
        key = self._key(content)
        return content if key is None else self._representatives.setdefault(key, content)

    def _key(self, content: Content) -> tuple[Any, ...] | None:
        """None for a content that stands for itself only: what makes no sense is an error wherever it is."""
        device, driver = content.device, content.driver
        if self._places is None or not content.plain:
            return None
        key: list[Any] = [driver, bool(device.get("allowMultipleAllocations"))]
        for kind, domain, name in self._places:
            values: Mapping[str, Any] = device.get(kind) or {}
            full, short = values.get(f"{domain}/{name}"), values.get(name) if domain == driver else None
            if full is not None and short is not None:
                return None
            value = short if full is None else full
            key.append(None if value is None else value.get("value") if kind == "capacity" else (*value.items(),))
        return tuple(key)
