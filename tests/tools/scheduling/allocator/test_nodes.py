from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import AllocationError
from dra_sdk.tools.scheduling.allocator.nodes import declares, matches, selected
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
    assert matches(selector(requirement), NODE) is holds


def test_requirements_all_hold_and_terms_are_alternatives() -> None:
    yes, no = need("zone", "In", "a"), need("rank", "Gt", "9")
    assert not matches(selector(yes, no), NODE)
    either = {"nodeSelectorTerms": [{"matchExpressions": [no]}, {"matchExpressions": [yes]}]}
    assert matches(either, NODE)


def test_nothing_is_selected_by_nothing() -> None:
    assert not matches({"nodeSelectorTerms": [{}]}, NODE)
    assert not matches({}, NODE)


def test_fields() -> None:
    assert matches(selector(fields=(need("metadata.name", "In", "n1"),)), NODE)
    assert not matches(selector(fields=(need("metadata.name", "NotIn", "n1"),)), NODE)
    assert not matches(selector(fields=(need("spec.providerID", "In", "x"),)), NODE)


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
def test_a_selector_that_makes_no_sense_is_an_error(broken: dict[str, Any], problem: str) -> None:
    with pytest.raises(AllocationError, match=problem):
        matches(broken, NODE)


def test_the_first_way_to_select_decides() -> None:
    assert selected({"nodeName": "n1"}, NODE)
    assert not selected({"nodeName": "n2", "allNodes": True}, NODE)
    assert selected({"allNodes": True}, NODE)
    assert selected({"nodeSelector": selector(need("zone", "In", "a"))}, NODE)
    assert not selected({}, NODE)


def test_what_a_node_declares() -> None:
    able = NODE | {"status": {"declaredFeatures": ["A", "B"]}}
    assert [declares(able, each) for each in "ABC"] == [True, True, False]
    assert not declares(NODE, "A")
