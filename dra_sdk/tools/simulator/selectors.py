"""Field and label selectors of list, watch and deletecollection, parsed once and matched against each object.

Field selectors have `=`, `==` and `!=` on the paths that the kind allows; label selectors also have existence, `in` and
`notin`. Contract: k8s.io/apimachinery pkg/fields and pkg/labels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dra_sdk.tools.simulator import statuses

if TYPE_CHECKING:
    from dra_sdk.model import JSON
    from dra_sdk.tools.simulator.resources import ResourceType

_COMPARISON = re.compile(r"^\s*(?P<key>[^=!\s]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^=!]*?)\s*$")
_SET = re.compile(r"^\s*(?P<key>[^\s(),!]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)\s*$")
_EXISTS = re.compile(r"^\s*(?P<not>!?)\s*(?P<key>[^\s=!,()]+)\s*$")
_COMMA = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True)
class Requirement:
    """One term of a selector.

    key: the label or the field path.
    values: the values that match, None to match any value (the label exists).
    negated: whether the term matches everything else instead.
    """

    key: str
    values: frozenset[str] | None
    negated: bool

    def accepts(self, value: str | None) -> bool:
        """Whether an object with this value matches; None if it has no such label."""
        present = value is not None if self.values is None else value in self.values
        return present is not self.negated


@dataclass(frozen=True)
class Selector:
    """The selection of a list or watch.

    namespace: "" for all.
    fields: requirements on fields.
    labels: requirements on labels.
    """

    namespace: str = ""
    fields: tuple[Requirement, ...] = ()
    labels: tuple[Requirement, ...] = ()

    def matches(self, obj: JSON) -> bool:
        """Whether the object is in the selection."""
        metadata = obj["metadata"]
        if self.namespace and metadata.get("namespace", "") != self.namespace:
            return False
        labels = metadata.get("labels") or {}
        return all(term.accepts(_field(obj, term.key)) for term in self.fields) and all(
            term.accepts(labels.get(term.key)) for term in self.labels
        )


def parse(resource: ResourceType, *, namespace: str = "", fields: str = "", labels: str = "") -> Selector:
    """Parses a selector; `StatusError` 400 if it is malformed or names a field path that the kind does not allow."""
    return Selector(
        namespace,
        tuple(_field_term(resource, term) for term in _terms(fields)),
        tuple(_label_term(term) for term in _terms(labels)),
    )


def _terms(text: str) -> list[str]:
    return [term for term in _COMMA.split(text) if term.strip()]


def _field_term(resource: ResourceType, term: str) -> Requirement:
    found = _COMPARISON.match(term)
    if not found:
        raise statuses.bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    key = found["key"]
    if key not in resource.field_selectors:
        raise statuses.bad_request(_unknown(resource, key))
    return Requirement(key, frozenset({found["value"]}), found["op"] == "!=")


def _unknown(resource: ResourceType, key: str) -> str:
    if resource.field_selectors == ("metadata.name", "metadata.namespace"):
        return f'"{key}" is not a known field selector: only "metadata.name", "metadata.namespace"'
    return f"field label not supported for {resource.api_version}, Kind={resource.kind}: {key}"


def _label_term(term: str) -> Requirement:
    if found := _SET.match(term):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return Requirement(found["key"], values, found["op"] == "notin")
    if found := _COMPARISON.match(term):
        return Requirement(found["key"], frozenset({found["value"]}), found["op"] == "!=")
    if found := _EXISTS.match(term):
        return Requirement(found["key"], None, bool(found["not"]))
    raise statuses.bad_request(f"unable to parse requirement: {term.strip()!r} is not a label selector")


def _field(obj: JSON, path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    # An absent field is the empty string, so that `spec.nodeName=` selects objects without a node.
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
