"""CEL selectors on devices, each evaluated at most once for devices that are equal where it looks.

Source: resource.k8s.io/v1 CELDeviceSelector. The selectors of the class come first, then those of the request; the
first that is false decides, so that later ones are not evaluated.
"""

from __future__ import annotations

from dra_sdk import cel
from dra_sdk.tools.scheduling.allocator.allocated import DeviceId
from dra_sdk.tools.scheduling.allocator.devices import Content
from dra_sdk.tools.scheduling.allocator.errors import SelectorError
from dra_sdk.tools.scheduling.allocator.footprint import Footprint, Place, places
from dra_sdk.tools.scheduling.allocator.requests import Request

Verdict = bool | cel.CelError


class Expression:
    """One expression with what it said about each content so far."""

    __slots__ = ("_compiled", "_footprint", "_verdicts", "text")

    def __init__(self, text: str, features: cel.Features, footprint: Footprint) -> None:
        self.text, self._footprint = text, footprint
        self._verdicts: dict[Content, Verdict] = {}
        self._compiled: cel.Selector | cel.CelError
        try:
            self._compiled = cel.compile(text, features)
        except cel.CelError as error:
            self._compiled = error

    def verdict(self, content: Content) -> Verdict:
        """Whether it is true of a device, or why that cannot be said."""
        same = self._footprint.of(content)
        found = self._verdicts.get(same)
        if found is None:
            found = self._verdicts[same] = self._evaluated(same)
        return found

    def _evaluated(self, content: Content) -> Verdict:
        if isinstance(self._compiled, cel.CelError):
            return self._compiled
        try:
            return self._compiled.matches(content.view)
        except cel.CelError as error:
            return error


class Selection:
    """All selectors of a request, which all must be true of a device."""

    __slots__ = ("_expressions", "known")

    def __init__(self, expressions: tuple[Expression, ...]) -> None:
        self._expressions = expressions
        #: What was found so far.
        self.known: dict[Content, bool] = {}

    def selects(self, content: Content, request: Request, device: DeviceId) -> bool:
        """Whether they are; SelectorError, naming request and device, if one has no answer."""
        found = self.known.get(content)
        if found is None:
            found = self.known[content] = self._evaluated(content, request, device)
        return found

    def _evaluated(self, content: Content, request: Request, device: DeviceId) -> bool:
        for index, expression in enumerate(self._expressions):
            verdict = expression.verdict(content)
            if isinstance(verdict, cel.CelError):
                raise SelectorError(request.where(index), str(device), verdict)
            if not verdict:
                return False
        return True


class Selectors:
    """The expressions and selections of an allocator, shared by equal requests."""

    def __init__(self, features: cel.Features) -> None:
        self._features = features
        self._expressions: dict[str, Expression] = {}
        self._footprints: dict[tuple[Place, ...] | None, Footprint] = {}
        self._selections: dict[tuple[str, ...], Selection] = {}

    def expression(self, text: str) -> Expression:
        """An expression, compiled once."""
        found = self._expressions.get(text)
        if found is None:
            found = self._expressions[text] = Expression(text, self._features, self._footprint(text))
        return found

    def _footprint(self, text: str) -> Footprint:
        where = places(text)
        found = self._footprints.get(where)
        if found is None:
            found = self._footprints[where] = Footprint(where)
        return found

    def of(self, request: Request) -> Selection:
        """The selectors of a request and its class."""
        found = self._selections.get(request.selectors)
        if found is None:
            expressions = tuple(self.expression(text) for text in request.selectors)
            found = self._selections[request.selectors] = Selection(expressions)
        return found
