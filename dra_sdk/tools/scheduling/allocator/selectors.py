"""CEL selectors on devices, each evaluated at most once for devices that are equal in the fields it reads.

Real devices differ in a serial number or a bus address that selectors rarely read. An expression that names the fields
it reads (`device.attributes["gpu.example.com"].model`) gives the same result for all devices that are equal in these
fields. One that reads a map as a whole, or computes a name, is evaluated for every content.

The selectors of the class come first, then those of the request; the first that is false decides, and later ones are
not evaluated. Source: resource.k8s.io/v1 CELDeviceSelector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from dra_sdk import cel
from dra_sdk.cel import CelError
from dra_sdk.cel.parser import parse
from dra_sdk.cel.syntax import Bind, CallNode, Comprehension, Expr, Ident, Literal, Select
from dra_sdk.tools.scheduling.allocator.allocation_errors import SelectorError
from dra_sdk.tools.scheduling.allocator.claim_requests import ParsedRequest
from dra_sdk.tools.scheduling.allocator.devices import DeviceContent, DeviceId

FieldRef = tuple[str, str, str]
"""`attributes` or `capacity`, domain and name of a field that an expression reads."""
FieldPath = tuple[str, ...]
"""The names by which a value is selected from the device."""
Bindings = Mapping[str, FieldPath | None]
"""What each variable stands for: a path from the device, or None for anything else."""
_INDICES: Final = frozenset({"_[_]", "_[?_]", "_?._"})
_FIELD_DEPTH: Final = 3
_ROOT: Final[Bindings] = {"device": ()}
"""The variables that a name with a leading dot can mean."""
_ALWAYS_EQUAL: Final = frozenset({("driver",), ("allowMultipleAllocations",)})
"""Fields that are always part of the comparison."""


class _UnboundedError(Exception):
    """The expression may read fields that it does not name."""


def referenced_fields(expression: str) -> tuple[FieldRef, ...] | None:
    """Return the fields that an expression can read; None if it may read any field, or is not valid."""
    try:
        return tuple(sorted(set(_referenced_fields(parse(expression), _ROOT))))
    except (_UnboundedError, CelError):
        return None


def _referenced_fields(node: Expr, bindings: Bindings) -> Iterator[FieldRef]:
    if isinstance(node, Bind):
        path = _field_path(node.value, bindings)
        if path is None:
            yield from _referenced_fields(node.value, bindings)
        yield from _referenced_fields(node.result, {**bindings, node.name: path})
        return
    if isinstance(node, Comprehension):
        yield from _referenced_fields(node.items, bindings)
        bindings = {**bindings, **dict.fromkeys((node.variable, node.variable2, node.accumulator))}
        for child in node.children()[1:]:
            yield from _referenced_fields(child, bindings)
        return
    path = _field_path(node, bindings)
    if path is None:
        for child in node.children():
            yield from _referenced_fields(child, bindings)
    elif len(path) >= _FIELD_DEPTH:
        yield path[0], path[1], path[2]
    elif path not in _ALWAYS_EQUAL:
        raise _UnboundedError


def _field_path(node: Expr, bindings: Bindings) -> FieldPath | None:
    """Return `("attributes", "domain", "name")` for a selection by constants from the device, else None."""
    if isinstance(node, Ident):
        return _ROOT.get(node.name) if node.root else bindings.get(node.name)
    if isinstance(node, Select):
        before, key = _field_path(node.operand, bindings), node.name
    elif isinstance(node, CallNode) and node.function in _INDICES:
        operand, index = node.operands()
        before = _field_path(operand, bindings)
        if before is None or len(before) >= _FIELD_DEPTH:
            return None
        if not isinstance(index, Literal) or not isinstance(index.value, str):
            raise _UnboundedError
        key = index.value
    else:
        return None
    return None if before is None else (*before, key)


class EquivalentContents:
    """Groups contents that are equal in some fields; the first content of each group represents it."""

    __slots__ = ("_fields", "_known", "_representatives")

    def __init__(self, fields: Sequence[FieldRef] | None) -> None:
        self._fields = fields
        self._representatives: dict[Any, DeviceContent] = {}
        self._known: dict[DeviceContent, DeviceContent] = {}

    def representative_of(self, content: DeviceContent) -> DeviceContent:
        """Return the content that represents the group of this content."""
        representative = self._known.get(content)
        if representative is None:
            key = self._key(content)
            representative = content if key is None else self._representatives.setdefault(key, content)
            self._known[content] = representative
        return representative

    def _key(self, content: DeviceContent) -> tuple[Any, ...] | None:
        """Return the values of the fields; None for a content that represents only itself, such as an invalid one."""
        device, driver = content.device, content.driver
        if self._fields is None or not content.all_scalar:
            return None
        key: list[Any] = [driver, bool(device.get("allowMultipleAllocations"))]
        for kind, domain, name in self._fields:
            values: Mapping[str, Any] = device.get(kind) or {}
            full, short = values.get(f"{domain}/{name}"), values.get(name) if domain == driver else None
            if full is not None and short is not None:
                return None
            value = short if full is None else full
            key.append(None if value is None else value.get("value") if kind == "capacity" else (*value.items(),))
        return tuple(key)


SelectorVerdict = bool | cel.CelError


class SelectorExpression:
    """A CEL expression and its result for each content so far."""

    __slots__ = ("_compiled", "_equivalent_contents", "_verdicts", "text")

    def __init__(self, text: str, features: cel.Features, equivalent: EquivalentContents) -> None:
        self.text, self._equivalent_contents = text, equivalent
        self._verdicts: dict[DeviceContent, SelectorVerdict] = {}
        self._compiled: cel.Selector | cel.CelError
        try:
            self._compiled = cel.compile(text, features)
        except cel.CelError as error:
            self._compiled = error

    def verdict(self, content: DeviceContent) -> SelectorVerdict:
        """Return whether it is true for a device, or the error of its evaluation."""
        representative = self._equivalent_contents.representative_of(content)
        verdict = self._verdicts.get(representative)
        if verdict is None:
            verdict = self._verdicts[representative] = self._evaluate(representative)
        return verdict

    def _evaluate(self, content: DeviceContent) -> SelectorVerdict:
        if isinstance(self._compiled, cel.CelError):
            return self._compiled
        try:
            return self._compiled.matches(content.view)
        except cel.CelError as error:
            return error


class RequestSelectors:
    """All selectors of a request; a device has to pass all of them."""

    __slots__ = ("_expressions", "known_results")

    def __init__(self, expressions: tuple[SelectorExpression, ...]) -> None:
        self._expressions = expressions
        #: The results so far.
        self.known_results: dict[DeviceContent, bool] = {}

    def selects(self, content: DeviceContent, request: ParsedRequest, device: DeviceId) -> bool:
        """Return whether all are true; SelectorError, naming request and device, if one fails."""
        selected = self.known_results.get(content)
        if selected is None:
            selected = self.known_results[content] = self._evaluate(content, request, device)
        return selected

    def _evaluate(self, content: DeviceContent, request: ParsedRequest, device: DeviceId) -> bool:
        for index, expression in enumerate(self._expressions):
            verdict = expression.verdict(content)
            if isinstance(verdict, cel.CelError):
                raise SelectorError(request.describe_selector(index), str(device), verdict)
            if not verdict:
                return False
        return True


class SelectorCache:
    """The compiled expressions of an allocator, and the selectors of its requests; equal requests share them."""

    def __init__(self, features: cel.Features) -> None:
        self._features = features
        #: Returns the expression with a text, compiled once.
        self.expression = cache(self._compile)
        self._equivalent_contents = cache(EquivalentContents)
        self._selectors = cache(self._combine)

    def _compile(self, text: str) -> SelectorExpression:
        return SelectorExpression(text, self._features, self._equivalent_contents(referenced_fields(text)))

    def _combine(self, texts: tuple[str, ...]) -> RequestSelectors:
        return RequestSelectors(tuple(map(self.expression, texts)))

    def for_request(self, request: ParsedRequest) -> RequestSelectors:
        """Return the selectors of a request and its class."""
        return self._selectors(request.selectors)
