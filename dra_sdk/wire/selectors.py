"""Label selectors as text, such as `app=web,tier!=cache,zone in (a, b),!old`.

Contract: k8s.io/apimachinery pkg/labels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

COMPARISON: Final = re.compile(r"^\s*(?P<key>[^=!\s]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^=!]*?)\s*$")
"""`key=value`, `key==value` or `key!=value`, as in field selectors too."""
_SET: Final = re.compile(r"^\s*(?P<key>[^\s(),!]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)\s*$")
_EXISTS: Final = re.compile(r"^\s*(?P<not>!?)\s*(?P<key>[^\s=!,()]+)\s*$")
_COMMA: Final = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True)
class SelectorTerm:
    """One term of a selector.

    key: the label or the field path.
    values: the values that match, None to match any value (the label exists).
    negated: whether the term matches everything else instead.
    """

    key: str
    values: frozenset[str] | None
    negated: bool

    def accepts(self, value: str | None) -> bool:
        """Return whether an object with this value matches; None if it has no such label."""
        present = value is not None if self.values is None else value in self.values
        return present is not self.negated


LabelSelector = tuple[SelectorTerm, ...]
"""All of them must match."""


def terms(text: str) -> list[str]:
    """Return the terms of a selector; a comma within parentheses separates values."""
    return [term for term in _COMMA.split(text) if term.strip()]


def parse_labels(text: str) -> LabelSelector:
    """Parse a label selector; ValueError names the term that is none."""
    return tuple(_label_term(term) for term in terms(text))


def labels_match(selector: LabelSelector, labels: Mapping[str, str] | None) -> bool:
    """Return whether labels match all terms."""
    given = labels or {}
    return all(term.accepts(given.get(term.key)) for term in selector)


def _label_term(term: str) -> SelectorTerm:
    if match := _SET.match(term):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return SelectorTerm(match["key"], values, match["op"] == "notin")
    if match := COMPARISON.match(term):
        return SelectorTerm(match["key"], frozenset({match["value"]}), match["op"] == "!=")
    if match := _EXISTS.match(term):
        return SelectorTerm(match["key"], None, bool(match["not"]))
    raise ValueError(f"unable to parse requirement: {term.strip()!r} is not a label selector")
