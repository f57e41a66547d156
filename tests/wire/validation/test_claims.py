from __future__ import annotations

import pytest

from tests.wire.validation.objects import VERSIONS, changed, claim, found, request, template

OTHER = {"name": "other", "firstAvailable": [{"name": "large", "deviceClassName": "a"}]}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("gpu", set()),
        ("other", set()),
        ("other/large", set()),
        ("missing", {"Invalid"}),
        ("gpu/large", {"Invalid"}),
        ("other/small", {"Invalid"}),
        ("other/large/x", {"Invalid"}),
        ("", {"Invalid"}),
    ],
)
def test_references_to_requests(reference, expected, version):
    constraint = {"requests": [reference], "matchAttribute": "a.com/b"}
    config = {"requests": [reference], "opaque": {"driver": "a.com", "parameters": {}}}
    obj = claim(request(), OTHER, constraints=[constraint], config=[config])
    fields = ("spec.devices.constraints[0].requests[0]", "spec.devices.config[0].requests[0]")
    assert found(obj, version) == {(field, kind) for field in fields for kind in expected}


def test_references_are_a_set_of_limited_size():
    constraint = {"requests": ["gpu", "gpu"], "matchAttribute": "a.com/b"}
    assert found(claim(constraints=[constraint])) == {("spec.devices.constraints[0].requests[1]", "Duplicate")}
    constraint["requests"] = ["gpu"] * 33
    assert found(claim(constraints=[constraint])) == {("spec.devices.constraints[0].requests", "TooMany")}


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ({"matchAttribute": "a.com/b"}, set()),
        ({"distinctAttribute": "a.com/b"}, set()),
        ({"matchAttribute": "a.com/b", "distinctAttribute": "not looked at"}, set()),
        ({"matchAttribute": "b"}, {(".matchAttribute", "Invalid")}),
        ({"distinctAttribute": "a.com/b-c"}, {(".distinctAttribute", "Invalid")}),
        ({}, {("", "Required")}),
    ],
)
def test_constraints(constraint, expected):
    at = "spec.devices.constraints[0]"
    assert found(claim(constraints=[constraint])) == {(f"{at}{field}", kind) for field, kind in expected}


def test_without_consumable_capacity_only_one_attribute_can_be_meant():
    obj = claim(constraints=[{}])
    at = "spec.devices.constraints[0].matchAttribute"
    assert found(obj, gates={"DRAConsumableCapacity": False}) == {(at, "Required")}


def test_how_many():
    config = {"opaque": {"driver": "a.com", "parameters": {}}}
    assert found(claim(constraints=[{"matchAttribute": "a.com/b"}] * 32, config=[config] * 32)) == set()
    obj = claim(constraints=[{"matchAttribute": "a.com/b"}] * 33, config=[config] * 33)
    assert found(obj) == {("spec.devices.constraints", "TooMany"), ("spec.devices.config", "TooMany")}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("old", [claim(), template()], ids=["claim", "template"])
def test_a_spec_never_changes(old, version):
    path = ("spec", "devices") if old["kind"] == "ResourceClaim" else ("spec", "spec", "devices")
    assert found(old, version, old=old) == set()
    assert found(changed(old, "metadata", "labels", to={"a": "b"}), version, old=old) == set()
    assert found(changed(old, *path, "requests", to=[request("other")]), version, old=old) == {("spec", "Invalid")}


def test_what_defaults_fill_in_is_no_change():
    old = claim(request(allocationMode="ExactCount", count=1, tolerations=[{"operator": "Equal"}]))
    assert found(claim(request(tolerations=[{}])), old=old) == set()


def test_the_status_of_a_new_claim_does_not_count():
    assert found(claim(status={"reservedFor": [{}]})) == set()
