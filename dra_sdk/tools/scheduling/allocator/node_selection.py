"""Which nodes a slice, a device or an allocation is for.

The terms of a NodeSelector are alternatives, the requirements of a term must all match, and an empty term matches
nothing. Source: resource.k8s.io/v1 ResourceSliceSpec (nodeName, allNodes, nodeSelector, perDeviceNodeSelection);
core/v1 NodeSelector.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.allocation_errors import AllocationError

SelectorRequirement = Mapping[str, Any]


def node_name(node: JSON) -> str:
    """Return the name of a node."""
    return str((node.get("metadata") or {}).get("name") or "")


def node_labels(node: JSON) -> Mapping[str, str]:
    """Return the labels of a node."""
    return (node.get("metadata") or {}).get("labels") or {}


def declares_feature(node: JSON, feature: str) -> bool:
    """Return whether the node's kubelet declares a feature (`status.declaredFeatures`)."""
    return feature in ((node.get("status") or {}).get("declaredFeatures") or ())


def selects_node(scope: Mapping[str, Any], node: JSON) -> bool:
    """Return whether the spec of a slice, or a device with its own node selection, selects this node.

    Of `nodeName`, `allNodes` and `nodeSelector`, the first that is set decides; if none is set, no node is selected.
    Raises AllocationError for an invalid selector.
    """
    if name := scope.get("nodeName"):
        return bool(name == node_name(node))
    if scope.get("allNodes"):
        return True
    selector = scope.get("nodeSelector")
    return selector is not None and matches_node_selector(selector, node)


def matches_node_selector(selector: Mapping[str, Any], node: JSON) -> bool:
    """Return whether a core/v1 NodeSelector matches a node; AllocationError if the selector is invalid."""
    terms = _checked_terms(selector)
    return any(_term_matches(term, node) for term in terms)


def unmet_requirement(selector: Mapping[str, Any], node: JSON) -> SelectorRequirement | None:
    """Return the first requirement that a node does not meet; None if the selector has several terms, or matches."""
    terms = _checked_terms(selector)
    if len(terms) != 1 or _term_matches(terms[0], node):
        return None
    labels, fields = node_labels(node), {"metadata.name": node_name(node)}
    expressions: list[SelectorRequirement] = terms[0].get("matchExpressions") or []
    named: list[SelectorRequirement] = terms[0].get("matchFields") or []
    unmet = [expression for expression in expressions if not label_matches(expression, labels)]
    return next(iter(unmet or [field for field in named if not _field_matches(field, fields)]), None)


def requirement_text(requirement: SelectorRequirement) -> str:
    """Return `zone In (a, b)`."""
    values = requirement.get("values") or []
    listed = f" ({', '.join(values)})" if values else ""
    return f"{requirement['key']} {requirement['operator']}{listed}"


def named_nodes(selector: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the names of the only nodes that a selector can match, if each of its terms names one; else None.

    Also None for an invalid selector.
    """
    try:
        terms = _checked_terms(selector)
    except AllocationError:
        return None
    names = [_name_in_term(term) for term in terms]
    return None if None in names else frozenset(name for name in names if name is not None)


def _name_in_term(term: Mapping[str, Any]) -> str | None:
    for field in term.get("matchFields") or []:
        if field.get("key") == "metadata.name" and field.get("operator") == "In":
            return str(field["values"][0]) or None  # a node without a name matches every field
    return None


def _checked_terms(selector: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the terms that can match; AllocationError if one of them is invalid."""
    terms = [term for term in selector.get("nodeSelectorTerms") or [] if _all_requirements(term)]
    for term in terms:
        for requirement in term.get("matchExpressions") or []:
            _check_expression(requirement)
        for requirement in term.get("matchFields") or []:
            _check_field(requirement)
    return terms


def _all_requirements(term: Mapping[str, Any]) -> list[SelectorRequirement]:
    return [*(term.get("matchExpressions") or []), *(term.get("matchFields") or [])]


def _term_matches(term: Mapping[str, Any], node: JSON) -> bool:
    labels, name = node_labels(node), node_name(node)
    fields = {"metadata.name": name}
    return all(label_matches(expression, labels) for expression in term.get("matchExpressions") or []) and (
        not name or all(_field_matches(field, fields) for field in term.get("matchFields") or [])
    )


def _check_expression(requirement: SelectorRequirement) -> None:
    name, values = requirement.get("operator"), requirement.get("values") or []
    if name not in _OPERATORS:
        problem = f"operator {name!r} is unknown: want one of {', '.join(_OPERATORS)}"
    elif name in {"In", "NotIn"} and not values:
        problem = f"operator {name} needs at least one value"
    elif name in {"Exists", "DoesNotExist"} and values:
        problem = f"operator {name} takes no values"
    elif name in {"Gt", "Lt"} and (len(values) != 1 or _parse_int(values[0]) is None):
        problem = f"operator {name} needs exactly one whole number"
    else:
        return
    raise AllocationError(f"node selector, requirement on {requirement.get('key')!r}: {problem}")


def _check_field(requirement: SelectorRequirement) -> None:
    if requirement.get("operator") not in {"In", "NotIn"} or len(requirement.get("values") or []) != 1:
        where = f"node selector, requirement on field {requirement.get('key')!r}"
        raise AllocationError(f"{where}: want operator In or NotIn with exactly one value")


def label_matches(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Return whether a label matches a requirement, whose operator must be known."""
    return _OPERATORS[requirement["operator"]](labels.get(requirement.get("key", "")), requirement.get("values") or [])


def _field_matches(requirement: SelectorRequirement, fields: Mapping[str, str]) -> bool:
    """Return whether a field matches; unknown fields are empty."""
    return _OPERATORS[requirement["operator"]](fields.get(requirement["key"], ""), requirement.get("values") or [])


def _parse_int(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def _holds(compare: Callable[[int, int], bool], value: str | None, values: list[str]) -> bool:
    have, want = _parse_int(value), _parse_int(values[0])
    return have is not None and want is not None and compare(have, want)


_OPERATORS: Final[Mapping[str, Callable[[str | None, list[str]], bool]]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": partial(_holds, operator.gt),
    "Lt": partial(_holds, operator.lt),
}
