"""Field and label selectors of list, watch and deletecollection, parsed once and matched against each object.

Field selectors have `=`, `==` and `!=` on the paths that the kind allows; label selectors also have existence, `in` and
`notin`. Contract: k8s.io/apimachinery pkg/fields and pkg/labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.tools.simulator import statuses
from dra_sdk.tools.simulator.resources import NAME_AND_NAMESPACE, ResourceType
from dra_sdk.wire.selectors import COMPARISON, LabelSelector, SelectorTerm, labels_match, parse_labels, terms


@dataclass(frozen=True)
class ObjectSelector:
    """The selection of a list or watch.

    namespace: "" for all.
    fields: requirements on fields.
    labels: requirements on labels.
    """

    namespace: str = ""
    fields: tuple[SelectorTerm, ...] = ()
    labels: LabelSelector = ()

    def matches(self, obj: JSON) -> bool:
        """Return whether the object is in the selection."""
        metadata = obj["metadata"]
        if self.namespace and metadata.get("namespace", "") != self.namespace:
            return False
        fields = all(term.accepts(field_text(obj, term.key)) for term in self.fields)
        return fields and labels_match(self.labels, metadata.get("labels"))


def parse(resource: ResourceType, *, namespace: str = "", fields: str = "", labels: str = "") -> ObjectSelector:
    """Parse a selector; `StatusError` 400 if it is malformed or names a field path that the kind does not allow."""
    try:
        requirements = parse_labels(labels)
    except ValueError as error:
        raise statuses.bad_request(str(error)) from error
    return ObjectSelector(namespace, tuple(_field_term(resource, term) for term in terms(fields)), requirements)


def _field_term(resource: ResourceType, term: str) -> SelectorTerm:
    match = COMPARISON.match(term)
    if not match:
        raise statuses.bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    key = match["key"]
    if key not in resource.field_selectors:
        raise statuses.bad_request(_unknown(resource, key))
    return SelectorTerm(key, frozenset({match["value"]}), match["op"] == "!=")


def _unknown(resource: ResourceType, key: str) -> str:
    if resource.field_selectors == NAME_AND_NAMESPACE:
        return f'"{key}" is not a known field selector: only "metadata.name", "metadata.namespace"'
    return f"field label not supported for {resource.api_version}, Kind={resource.kind}: {key}"


def field_text(obj: JSON, path: str) -> str:
    """Return the text of the field at a dotted path; empty if the object has none."""
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    # An absent field is the empty string, so that `spec.nodeName=` selects objects without a node.
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
