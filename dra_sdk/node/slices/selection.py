"""Which slices a driver has to look after: those of its node, and those it owns among the ones several nodes see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dra_sdk.model import JSON
from dra_sdk.node.slices.cache import Scope


@dataclass(frozen=True, slots=True)
class Selection:
    """The slices to follow: a field selector for the server, and a test for what the server cannot select."""

    scope: Scope
    field_selector: str
    accepts: Callable[[JSON], bool]


def select(scope: Scope, driver: str, node_name: str | None) -> Selection:
    """The slices of one scope.

    The driver of a node shares the cluster's scope with those of other nodes, so there it only minds slices whose
    owner is its Node. A driver without node minds them all.
    """
    wanted = node_name if scope is Scope.NODE else ""

    def accepts(item: JSON) -> bool:
        spec = item["spec"]
        if spec.get("driver") != driver or (spec.get("nodeName") or "") != wanted:
            return False
        return scope is Scope.NODE or node_name is None or _is_owned(item, node_name)

    return Selection(scope, f"spec.driver={driver},spec.nodeName={wanted}", accepts)


def _is_owned(item: JSON, node_name: str) -> bool:
    references = item["metadata"].get("ownerReferences") or []
    return any(each.get("kind") == "Node" and each.get("name") == node_name for each in references)
