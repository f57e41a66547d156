from __future__ import annotations

import pytest

from dra_sdk.wire.validation.metadata import MAX_ANNOTATIONS
from tests.wire.validation.objects import changed, claim, device_class, found, resource_slice, template

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
def test_metadata_of_a_new_object(metadata, problems):
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
def test_owners_are_named_since_1_37(field, value, old, new):
    obj = changed(resource_slice(), "metadata", "ownerReferences", to=[{**OWNER, field: value}])
    assert found(obj, "1.36") == {(f"metadata.{old[0]}", old[1])}
    assert found(obj, "1.37") == {(f"metadata.{new[0]}", new[1])}


def test_objects_in_namespaces():
    assert found(changed(claim(), "metadata", to={"name": "a"})) == {("metadata.namespace", "Required")}
    assert found(changed(claim(), "metadata", to={"name": "a", "namespace": "a.b"})) == {
        ("metadata.namespace", "Invalid")
    }


def test_the_generate_name_of_a_class_is_only_checked_by_what_comes_out():
    obj = changed(device_class(), "metadata", to={"generateName": "A", "name": "a"})
    assert found(obj, "1.35") == set()
    assert found(obj, "1.34") == {("metadata.generateName", "Invalid")}


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
def test_metadata_of_an_update(field, value, problem):
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


def test_a_template_hands_on_labels_and_annotations_only():
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
