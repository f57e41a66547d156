from __future__ import annotations

import pytest

from tests.wire.validation.objects import found, resource_slice

TERM = "spec.nodeSelector.nodeSelectorTerms[0]"


def selecting(**term):
    return resource_slice(nodeName=None, nodeSelector={"nodeSelectorTerms": [term]})


@pytest.mark.parametrize(
    ("requirement", "problems"),
    [
        ({"key": "a", "operator": "In", "values": ["b"]}, set()),
        ({"key": "a", "operator": "Exists"}, set()),
        ({"key": "a", "operator": "Gt", "values": ["1"]}, set()),
        ({"key": "a", "operator": "NotIn"}, {("values", "Required")}),
        ({"key": "a", "operator": "DoesNotExist", "values": ["b"]}, {("values", "Forbidden")}),
        ({"key": "a", "operator": "Lt", "values": ["1", "2"]}, {("values", "Required")}),
        ({"key": "a", "operator": "Is", "values": ["b"]}, {("operator", "Invalid")}),
        ({"key": "-", "operator": "Exists"}, {("key", "Invalid")}),
        ({"key": "a", "operator": "In", "values": ["b", "-"]}, {("values[1]", "Invalid")}),
    ],
)
def test_requirements_on_labels(requirement, problems):
    where = f"{TERM}.matchExpressions[0]"
    assert found(selecting(matchExpressions=[requirement])) == {(f"{where}.{field}", kind) for field, kind in problems}


@pytest.mark.parametrize(
    ("requirement", "problems"),
    [
        ({"key": "metadata.name", "operator": "In", "values": ["node-a"]}, set()),
        ({"key": "metadata.name", "operator": "In", "values": ["a", "b"]}, {("values", "Required")}),
        ({"key": "metadata.name", "operator": "Exists"}, {("operator", "Invalid")}),
        ({"key": "metadata.name", "operator": "NotIn", "values": ["A"]}, {("values[0]", "Invalid")}),
        ({"key": "spec.x", "operator": "In", "values": ["A"]}, {("key", "Invalid")}),
    ],
)
def test_requirements_on_fields(requirement, problems):
    where = f"{TERM}.matchFields[0]"
    assert found(selecting(matchFields=[requirement])) == {(f"{where}.{field}", kind) for field, kind in problems}


def test_a_slice_has_exactly_one_term():
    terms = "spec.nodeSelector.nodeSelectorTerms"
    assert found(resource_slice(nodeName=None, nodeSelector={})) == {(terms, "Required"), (terms, "Invalid")}
    two = {"nodeSelectorTerms": [{}, {}]}
    assert found(resource_slice(nodeName=None, nodeSelector=two)) == {(terms, "Invalid")}
