from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import AllocationError
from dra_sdk.tools.scheduling.allocator.node_selection import (
    declares_feature,
    matches_node_selector,
    named_nodes,
    selects_node,
)
from tests.tools.scheduling.allocator.build import node

NODE = node("n1", zone="a", rank="3")


def selector(*requirements: dict[str, Any], fields: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"nodeSelectorTerms": [{"matchExpressions": list(requirements), "matchFields": list(fields)}]}


def need(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("requirement", "holds"),
    [
        (need("zone", "In", "a", "b"), True),
        (need("zone", "In", "b"), False),
        (need("rack", "In", "a"), False),
        (need("zone", "NotIn", "a"), False),
        (need("rack", "NotIn", "a"), True),
        (need("zone", "Exists"), True),
        (need("zone", "DoesNotExist"), False),
        (need("rank", "Gt", "2"), True),
        (need("rank", "Gt", "3"), False),
        (need("rank", "Lt", "4"), True),
        (need("zone", "Lt", "4"), False),
        (need("rack", "Gt", "0"), False),
    ],
)
def test_operators(requirement: dict[str, Any], holds: bool) -> None:
    assert matches_node_selector(selector(requirement), NODE) is holds


def test_all_requirements_of_one_term_must_match() -> None:
    yes, no = need("zone", "In", "a"), need("rank", "Gt", "9")
    assert not matches_node_selector(selector(yes, no), NODE)
    either = {"nodeSelectorTerms": [{"matchExpressions": [no]}, {"matchExpressions": [yes]}]}
    assert matches_node_selector(either, NODE)


def test_an_empty_selector_matches_nothing() -> None:
    assert not matches_node_selector({"nodeSelectorTerms": [{}]}, NODE)
    assert not matches_node_selector({}, NODE)


def test_match_fields() -> None:
    assert matches_node_selector(selector(fields=(need("metadata.name", "In", "n1"),)), NODE)
    assert not matches_node_selector(selector(fields=(need("metadata.name", "NotIn", "n1"),)), NODE)
    assert not matches_node_selector(selector(fields=(need("spec.providerID", "In", "x"),)), NODE)


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (selector(need("zone", "Near", "a")), "operator 'Near' is unknown"),
        (selector(need("zone", "In")), "needs at least one value"),
        (selector(need("zone", "Exists", "a")), "takes no values"),
        (selector(need("rank", "Gt", "1", "2")), "exactly one whole number"),
        (selector(need("rank", "Lt", "x")), "exactly one whole number"),
        (selector(fields=(need("metadata.name", "In", "a", "b"),)), "exactly one value"),
    ],
)
def test_an_invalid_selector_is_an_error(broken: dict[str, Any], problem: str) -> None:
    with pytest.raises(AllocationError, match=problem):
        matches_node_selector(broken, NODE)


def test_node_name_then_all_nodes_then_node_selector() -> None:
    assert selects_node({"nodeName": "n1"}, NODE)
    assert not selects_node({"nodeName": "n2", "allNodes": True}, NODE)
    assert selects_node({"allNodes": True}, NODE)
    assert selects_node({"nodeSelector": selector(need("zone", "In", "a"))}, NODE)
    assert not selects_node({}, NODE)


def test_declared_features_of_a_node() -> None:
    able = NODE | {"status": {"declaredFeatures": ["A", "B"]}}
    assert [declares_feature(able, feature) for feature in "ABC"] == [True, True, False]
    assert not declares_feature(NODE, "A")


def by_name(*names, operator="In", key="metadata.name"):
    return {"matchFields": [{"key": key, "operator": operator, "values": list(names)}]}


@pytest.mark.parametrize(
    ("terms", "names"),
    [
        ([by_name("a")], {"a"}),
        ([by_name("a"), by_name("b")], {"a", "b"}),
        ([by_name("a") | {"matchExpressions": [{"key": "k", "operator": "Exists"}]}], {"a"}),
        ([by_name("a"), {}], {"a"}),  # an empty term matches nothing
        ([], set()),
        ([by_name("a", operator="NotIn")], None),
        ([by_name("a", key="metadata.uid")], None),
        ([by_name("a"), {"matchExpressions": [{"key": "k", "operator": "Exists"}]}], None),
        ([by_name("a", "b")], None),  # invalid, which every node has to report
        ([by_name("a"), {"matchExpressions": [{"key": "k", "operator": "Is"}]}], None),
    ],
)
def test_the_only_nodes_that_a_selector_can_match(terms, names):
    assert named_nodes({"nodeSelectorTerms": terms}) == names
