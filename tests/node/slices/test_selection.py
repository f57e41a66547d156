from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.node.slices.cache import Scope
from dra_sdk.node.slices.selection import select


def item(driver: str = "d", node: str | None = None, owner: tuple[str, str] | None = None) -> dict[str, Any]:
    references = [{"kind": owner[0], "name": owner[1]}] if owner else None
    return {
        "metadata": {"ownerReferences": references},
        "spec": {"driver": driver, **({"nodeName": node} if node else {})},
    }


@pytest.mark.parametrize(
    ("scope", "node", "selector"),
    [
        (Scope.NODE, "n", "spec.driver=d,spec.nodeName=n"),
        (Scope.CLUSTER, "n", "spec.driver=d,spec.nodeName="),
        (Scope.CLUSTER, None, "spec.driver=d,spec.nodeName="),
    ],
)
def test_field_selector(scope: Scope, node: str | None, selector: str):
    assert select(scope, "d", node).field_selector == selector


def test_the_nodes_own():
    accepts = select(Scope.NODE, "d", "n").accepts
    assert accepts(item(node="n"))
    assert not accepts(item(node="m"))
    assert not accepts(item(driver="x", node="n"))
    assert not accepts(item(owner=("Node", "n")))


def test_what_several_nodes_see_belongs_to_its_owner():
    accepts = select(Scope.CLUSTER, "d", "n").accepts
    assert accepts(item(owner=("Node", "n")))
    assert not accepts(item(owner=("Node", "m")))
    assert not accepts(item(owner=("Deployment", "n")))
    assert not accepts(item())
    assert not accepts(item(node="n", owner=("Node", "n")))


def test_a_driver_of_the_cluster_minds_all():
    accepts = select(Scope.CLUSTER, "d", None).accepts
    assert accepts(item())
    assert not accepts(item(node="n"))
    assert not accepts(item(driver="x"))
