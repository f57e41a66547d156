from __future__ import annotations

import pytest

from dra_sdk.wire.validation.metadata import MAX_ANNOTATIONS, MAX_MESSAGE, MAX_REASON
from tests.wire.validation.objects import changed, claim, device_class, found, resource_slice, taint_rule, template

OWNER = {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "1", "controller": True}


@pytest.mark.parametrize(
    ("metadata", "problems"),
    [
        ({"name": "a", "labels": {"example.com/a": "b"}, "annotations": {"Example.com/A": "anything at all"}}, set()),
        ({"generateName": "node-a-gpu-"}, set()),
        ({"generateName": "a" * 250}, set()),
        ({"generateName": "GPU-"}, {("metadata.generateName", "Invalid"), ("metadata.name", "Invalid")}),
        ({}, {("metadata.name", "Required")}),
        ({"name": "A"}, {("metadata.name", "Invalid")}),
        ({"name": "a", "namespace": "default"}, {("metadata.namespace", "Forbidden")}),
        ({"name": "a", "generation": -1}, {("metadata.generation", "Invalid")}),
        ({"name": "a", "labels": {"-": "b"}}, {("metadata.labels", "Invalid")}),
        ({"name": "a", "labels": {"a": "b c"}}, {("metadata.labels", "Invalid")}),
        ({"name": "a", "annotations": {"a b": ""}}, {("metadata.annotations", "Invalid")}),
        ({"name": "a", "annotations": {"a": "b" * MAX_ANNOTATIONS}}, {("metadata.annotations", "TooLong")}),
        ({"name": "a", "finalizers": ["example.com/a", "kubernetes"]}, set()),
        ({"name": "a", "finalizers": ["a"]}, {("metadata.finalizers[0]", "Invalid")}),
        ({"name": "a", "finalizers": ["-/b"]}, {("metadata.finalizers", "Invalid")}),
        ({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}, {("metadata.finalizers", "Invalid")}),
        ({"name": "a", "ownerReferences": [OWNER]}, set()),
        ({"name": "a", "ownerReferences": [OWNER, OWNER]}, set()),
        ({"name": "a", "ownerReferences": [OWNER, OWNER | {"uid": "2"}]}, {("metadata.ownerReferences", "Invalid")}),
    ],
)
def test_rules_of_new_metadata_are_checked(metadata, problems):
    assert found(changed(resource_slice(), "metadata", to=metadata)) == problems


@pytest.mark.parametrize(
    ("field", "value", "old", "new"),
    [
        ("kind", "", ("ownerReferences.kind", "Invalid"), ("ownerReferences[0].kind", "Required")),
        ("name", "", ("ownerReferences.name", "Invalid"), ("ownerReferences[0].name", "Required")),
        ("uid", "", ("ownerReferences.uid", "Invalid"), ("ownerReferences[0].uid", "Required")),
        ("apiVersion", "", ("ownerReferences.apiVersion", "Invalid"), ("ownerReferences[0].apiVersion", "Required")),
        ("kind", "Event", ("ownerReferences", "Invalid"), ("ownerReferences[0]", "Invalid")),
    ],
)
def test_owners_are_reported_with_their_index_since_1_37(field, value, old, new):
    obj = changed(resource_slice(), "metadata", "ownerReferences", to=[{**OWNER, field: value}])
    assert found(obj, "1.36") == {(f"metadata.{old[0]}", old[1])}
    assert found(obj, "1.37") == {(f"metadata.{new[0]}", new[1])}


def test_a_namespaced_object_needs_a_namespace():
    assert found(changed(claim(), "metadata", to={"name": "a"})) == {("metadata.namespace", "Required")}
    assert found(changed(claim(), "metadata", to={"name": "a", "namespace": "a.b"})) == {
        ("metadata.namespace", "Invalid")
    }


def test_only_the_result_of_a_generate_name_of_a_class_is_checked_since_1_35():
    obj = changed(device_class(), "metadata", to={"generateName": "A", "name": "a"})
    assert found(obj, "1.35") == set()
    assert found(obj, "1.34") == {("metadata.generateName", "Invalid")}


@pytest.mark.parametrize("name", ["a/b", "a%", "/"])
def test_a_generate_name_must_fit_into_a_path(name):
    problem = {("metadata.generateName", "Invalid")}
    obj = changed(device_class(), "metadata", to={"generateName": name, "name": "a"})
    assert found(obj, "1.35") == found(obj, "1.34") == problem
    assert found(changed(obj, "spec", "config", to=[{}]), "1.35") == {("spec.config[0].opaque", "Required")}
    selected = changed(obj, "spec", "selectors", to=[{"cel": {"expression": "true"}}])
    assert found(selected, "1.35") == problem
    for old in (device_class(), resource_slice()):
        assert found(changed(old, "metadata", "generateName", to=name), "1.35", old=old) == problem


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("resourceVersion", "", ("metadata.resourceVersion", "Invalid")),
        ("name", "other", ("metadata.name", "Invalid")),
        ("uid", "other", ("metadata.uid", "Invalid")),
        ("generation", 1, ("metadata.generation", "Invalid")),
        ("creationTimestamp", "2026-01-02T00:00:00Z", ("metadata.creationTimestamp", "Invalid")),
        ("deletionTimestamp", None, ("metadata.deletionTimestamp", "Invalid")),
        ("deletionGracePeriodSeconds", 1, ("metadata.deletionGracePeriodSeconds", "Invalid")),
        ("finalizers", ["a.com/kept", "a.com/new"], ("metadata.finalizers", "Forbidden")),
        ("labels", {"-": ""}, ("metadata.labels", "Invalid")),
    ],
)
def test_rules_of_updated_metadata_are_checked(field, value, problem):
    old = resource_slice()
    old["metadata"] |= {
        "uid": "1",
        "generation": 2,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 0,
        "finalizers": ["a.com/kept"],
    }
    assert found(old, old=old) == set()
    assert found(changed(old, "metadata", field, to=value), old=old) == {problem}


def test_a_template_may_set_only_labels_and_annotations():
    obj = template()
    obj["spec"]["metadata"] = {"labels": {"a": "b"}, "annotations": {"a": "b c"}}
    assert found(obj) == set()
    obj["spec"]["metadata"] = {"name": "a", "namespace": "b", "labels": {"-": ""}, "finalizers": ["a.com/b"]}
    assert found(obj) == {
        ("spec.metadata.name", "Forbidden"),
        ("spec.metadata.namespace", "Forbidden"),
        ("spec.metadata.finalizers", "Forbidden"),
        ("spec.metadata.labels", "Invalid"),
    }


GOOD = {"type": "a.com/Done", "status": "True", "reason": "AllGone", "lastTransitionTime": "2026-01-01T00:00:00Z"}
AT = "status.conditions"


def problems(*conditions, version="1.36"):
    rule = taint_rule("v1beta2" if version == "1.36" else "v1")
    return found(changed(rule, "status", to={"conditions": list(conditions)}), version, old=rule, subresource="status")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        ({"reason": "A:b,c_", "message": "m" * MAX_MESSAGE, "observedGeneration": 3}, set()),
        ({"type": "a b"}, {("type", "Invalid")}),
        ({"status": "Perhaps"}, {("status", "NotSupported")}),
        ({"observedGeneration": -1}, {("observedGeneration", "Invalid")}),
        ({"lastTransitionTime": None}, {("lastTransitionTime", "Required")}),
        ({"reason": ""}, {("reason", "Required")}),
        ({"reason": "not one word"}, {("reason", "Invalid")}),
        ({"reason": "r" * (MAX_REASON + 1)}, {("reason", "TooLong")}),
        ({"message": "m" * (MAX_MESSAGE + 1)}, {("message", "TooLong")}),
    ],
)
def test_rules_of_conditions_are_checked(changes, expected):
    for version in ("1.36", "1.37"):
        assert problems({**GOOD, **changes}, version=version) == {
            (f"{AT}[0].{field}", kind) for field, kind in expected
        }


@pytest.mark.parametrize(("field", "kind"), [("type", "Invalid"), ("status", "NotSupported")])
def test_missing_fields_of_conditions_are_required_since_1_37(field, kind):
    assert problems({**GOOD, field: ""}) == {(f"{AT}[0].{field}", kind)}
    assert problems({**GOOD, field: ""}, version="1.37") == {(f"{AT}[0].{field}", "Required")}


def test_condition_types_are_unique():
    assert problems(GOOD, GOOD) == {(f"{AT}[1].type", "Duplicate")}
    assert problems(GOOD, GOOD, version="1.37") == {(f"{AT}[1]", "Duplicate")}


def test_the_number_of_conditions_is_limited():
    conditions = [{**GOOD, "type": f"T{index}"} for index in range(9)]
    assert problems(*conditions[:8]) == set()
    assert problems(*conditions) == {(AT, "TooMany")}


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
def test_rules_of_label_requirements_are_checked(requirement, problems):
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
def test_rules_of_field_requirements_are_checked(requirement, problems):
    where = f"{TERM}.matchFields[0]"
    assert found(selecting(matchFields=[requirement])) == {(f"{where}.{field}", kind) for field, kind in problems}


def test_a_slice_has_exactly_one_term():
    terms = "spec.nodeSelector.nodeSelectorTerms"
    assert found(resource_slice(nodeName=None, nodeSelector={})) == {(terms, "Required"), (terms, "Invalid")}
    two = {"nodeSelectorTerms": [{}, {}]}
    assert found(resource_slice(nodeName=None, nodeSelector=two)) == {(terms, "Invalid")}
