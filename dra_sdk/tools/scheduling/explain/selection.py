"""Why a device is not selected: the clauses of a CEL selector that were false for it, and what they saw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dra_sdk import cel
from dra_sdk.cel.conjuncts import Conjunct, conjuncts
from dra_sdk.cel.fields import FieldValue
from dra_sdk.tools.scheduling.allocator.devices import Content
from dra_sdk.tools.scheduling.allocator.pools import Candidate
from dra_sdk.tools.scheduling.allocator.requests import Request
from dra_sdk.tools.scheduling.explain.funnel import Reason
from dra_sdk.tools.scheduling.explain.setting import Setting

_CHEAP: Final = cel.MAX_COST // 20
"""What a clause may cost when its expression as a whole costs too much."""


class Selector:
    """One selector of a request or of its class; `index` counts those of the class first."""

    def __init__(self, setting: Setting, request: Request, index: int) -> None:
        self.text = request.selectors[index]
        self.of_class = index < request.of_class
        self.number = index if self.of_class else index - request.of_class
        self._request = request
        self._expression = setting.selectors.expression(self.text)
        self._features = setting.features.cel
        self._known: dict[Content, tuple[Reason, ...]] = {}
        self._verdicts: dict[Content, tuple[tuple[Conjunct, bool | None], ...]] = {}

    @property
    def kind(self) -> str:
        """The kind of stage it is."""
        return "class" if self.of_class else "selector"

    @property
    def place(self) -> str:
        """Which one it is."""
        if self.of_class:
            return f"class {self._request.class_name}, selector {self.number}"
        return f"request {self._request.reference}, selector {self.number}"

    def clauses(self) -> tuple[Conjunct, ...]:
        """Its conjuncts; CelCompileError if it is no expression."""
        return conjuncts(self.text, self._features)

    def __call__(self, candidate: Candidate) -> tuple[Reason, ...]:
        """Why a candidate is not selected."""
        content = candidate.content
        found = self._known.get(content)
        if found is None:
            found = self._known[content] = tuple(self._reasons(content))
        return found

    def verdicts(self, content: Content) -> tuple[tuple[Conjunct, bool | None], ...]:
        """What each clause says of a device; None where it has no answer, or takes too long to give one."""
        found = self._verdicts.get(content)
        if found is None:
            costly = isinstance(self._expression.verdict(content), cel.CelCostError)
            limit = _CHEAP if costly else cel.MAX_COST
            found = self._verdicts[content] = tuple((each, each.holds(content.view, limit)) for each in self.clauses())
        return found

    def _reasons(self, content: Content) -> Iterator[Reason]:
        verdict = self._expression.verdict(content)
        if isinstance(verdict, cel.CelCompileError):
            yield Reason(f"fail, since it is no expression: {verdict.problem}", "", (verdict.line, verdict.column))
        elif isinstance(verdict, cel.CelError):
            yield self._unanswered(content, verdict)
        elif not verdict:
            for each, holds in self.verdicts(content):
                if holds is False:
                    yield Reason(f"fail {each.text}", seen(each.fields(content.view)), (each.line, each.column))

    def _unanswered(self, content: Content, error: cel.CelError) -> Reason:
        """The clause without an answer."""
        for each, holds in self.verdicts(content):
            if holds is not None:
                continue
            if isinstance(error, cel.CelCostError):
                return Reason(f"fail {each.text}: {error.problem}", "", (each.line, each.column))
            explanation = each.explain(content.view)
            problem = f"have no answer to {each.text}: {explanation.problem}"
            return Reason(problem, seen(explanation.fields), (explanation.line, explanation.column))
        return Reason(f"have no answer: {error.problem}")


def seen(fields: Sequence[FieldValue]) -> str:
    """What a clause saw, in one line."""
    return ", ".join(map(str, fields))
