"""Whether a node is one that a slice or a device is for.

Source: resource.k8s.io/v1 ResourceSliceSpec (nodeName, allNodes, nodeSelector, perDeviceNodeSelection) and core/v1
NodeSelector: terms are alternatives, the requirements of a term all hold; an empty term selects nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.errors import AllocationError

Requirement = Mapping[str, Any]


def name_of(node: JSON) -> str:
    """The node's name."""
    return str((node.get("metadata") or {}).get("name") or "")


def labels_of(node: JSON) -> Mapping[str, str]:
    """The node's labels."""
    return (node.get("metadata") or {}).get("labels") or {}


def declares(node: JSON, feature: str) -> bool:
    """Whether the node's kubelet says that it has a feature (`status.declaredFeatures`)."""
    return feature in ((node.get("status") or {}).get("declaredFeatures") or ())


def selected(place: Mapping[str, Any], node: JSON) -> bool:
    """Whether `place`, the spec of a slice or a device of it, is for this node.

    Of `nodeName`, `allNodes` and `nodeSelector` the first that is set decides; none of them means no node. Raises
    AllocationError for a selector that makes no sense.
    """
    if name := place.get("nodeName"):
        return bool(name == name_of(node))
    if place.get("allNodes"):
        return True
    selector = place.get("nodeSelector")
    return selector is not None and matches(selector, node)


def matches(selector: Mapping[str, Any], node: JSON) -> bool:
    """Whether a core/v1 NodeSelector selects a node; AllocationError if the selector makes no sense."""
    terms = [term for term in selector.get("nodeSelectorTerms") or [] if _requirements(term)]
    for term in terms:
        for requirement in term.get("matchExpressions") or []:
            _check(requirement)
        for requirement in term.get("matchFields") or []:
            _check_field(requirement)
    return any(_term(term, node) for term in terms)


def _requirements(term: Mapping[str, Any]) -> list[Requirement]:
    return [*(term.get("matchExpressions") or []), *(term.get("matchFields") or [])]


def _term(term: Mapping[str, Any], node: JSON) -> bool:
    labels, name = labels_of(node), name_of(node)
    fields = {"metadata.name": name}
    return all(_holds(each, labels) for each in term.get("matchExpressions") or []) and (
        not name or all(_field_holds(each, fields) for each in term.get("matchFields") or [])
    )


def _check(requirement: Requirement) -> None:
    operator, values = requirement.get("operator"), requirement.get("values") or []
    if operator not in _OPERATORS:
        problem = f"operator {operator!r} is unknown: want one of {', '.join(_OPERATORS)}"
    elif operator in {"In", "NotIn"} and not values:
        problem = f"operator {operator} needs at least one value"
    elif operator in {"Exists", "DoesNotExist"} and values:
        problem = f"operator {operator} takes no values"
    elif operator in {"Gt", "Lt"} and (len(values) != 1 or _number(values[0]) is None):
        problem = f"operator {operator} needs exactly one whole number"
    else:
        return
    raise AllocationError(f"node selector, requirement on {requirement.get('key')!r}: {problem}")


def _check_field(requirement: Requirement) -> None:
    if requirement.get("operator") not in {"In", "NotIn"} or len(requirement.get("values") or []) != 1:
        where = f"node selector, requirement on field {requirement.get('key')!r}"
        raise AllocationError(f"{where}: want operator In or NotIn with exactly one value")


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    return _OPERATORS[requirement["operator"]](labels.get(requirement["key"]), requirement.get("values") or [])


def _field_holds(requirement: Requirement, fields: Mapping[str, str]) -> bool:
    """Fields that are not known are empty."""
    return _OPERATORS[requirement["operator"]](fields.get(requirement["key"], ""), requirement.get("values") or [])


def _number(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def _greater(value: str | None, values: list[str]) -> bool:
    have, want = _number(value), _number(values[0])
    return have is not None and want is not None and have > want


def _less(value: str | None, values: list[str]) -> bool:
    have, want = _number(value), _number(values[0])
    return have is not None and want is not None and have < want


_OPERATORS: Final[Mapping[str, Callable[[str | None, list[str]], bool]]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": _greater,
    "Lt": _less,
}
