"""Which nodes: names of nodes and node selectors. Source: core/v1 NodeSelector validation."""

from __future__ import annotations

from typing import Final

from dra_sdk.wire.resource.metadata import NodeSelector, NodeSelectorRequirement
from dra_sdk.wire.validation.names import dns_subdomain, label_key, label_value
from dra_sdk.wire.validation.problems import Problems, forbidden, invalid, required, show

_SETS: Final = {"In", "NotIn"}
_EXISTENCE: Final = {"Exists", "DoesNotExist"}
_NUMBERS: Final = {"Gt", "Lt"}
NODE_NAME_FIELD: Final = "metadata.name"

node_name = dns_subdomain


def node_selector(selector: NodeSelector, field: str) -> Problems:
    """A selector with at least one term."""
    terms = selector.node_selector_terms or []
    if not terms:
        yield required(f"{field}.nodeSelectorTerms", "must have at least one term")
    for index, term in enumerate(terms):
        where = f"{field}.nodeSelectorTerms[{index}]"
        for place, requirement in enumerate(term.match_expressions or ()):
            yield from _expression(requirement, f"{where}.matchExpressions[{place}]")
        for place, requirement in enumerate(term.match_fields or ()):
            yield from _field(requirement, f"{where}.matchFields[{place}]")


def _expression(requirement: NodeSelectorRequirement, field: str) -> Problems:
    operator, values = requirement.operator, requirement.values or []
    if operator in _SETS and not values:
        yield required(f"{field}.values", f"must have a value for operator {operator}")
    elif operator in _EXISTENCE and values:
        yield forbidden(f"{field}.values", f"must have no values for operator {operator}")
    elif operator in _NUMBERS and len(values) != 1:
        yield required(f"{field}.values", f"must have one value for operator {operator}, has {len(values)}")
    elif operator not in _SETS | _EXISTENCE | _NUMBERS:
        choice = ", ".join(sorted(_SETS | _EXISTENCE | _NUMBERS))
        yield invalid(f"{field}.operator", f"must be one of {choice}, is {show(operator)}")
    yield from label_key(requirement.key, f"{field}.key")
    for index, value in enumerate(values):
        yield from label_value(value, f"{field}.values[{index}]")


def _field(requirement: NodeSelectorRequirement, field: str) -> Problems:
    operator, values = requirement.operator, requirement.values or []
    if operator not in _SETS:
        yield invalid(f"{field}.operator", f"must be In or NotIn for a field, is {show(operator)}")
    elif len(values) != 1:
        yield required(f"{field}.values", f"must have one value for a field, has {len(values)}")
    if requirement.key != NODE_NAME_FIELD:
        yield invalid(f"{field}.key", f"must be {NODE_NAME_FIELD}, is {show(requirement.key)}")
        return
    for index, value in enumerate(values):
        yield from node_name(value, f"{field}.values[{index}]")
