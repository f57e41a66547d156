from __future__ import annotations

import pytest

from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation import validate
from tests.wire.validation.objects import VERSIONS, changed, claim, device_class, found, request, template

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
def test_references_must_name_a_request_or_an_alternative(reference, expected, version):
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
def test_a_constraint_needs_one_qualified_attribute(constraint, expected):
    at = "spec.devices.constraints[0]"
    assert found(claim(constraints=[constraint])) == {(f"{at}{field}", kind) for field, kind in expected}


def test_without_consumable_capacity_match_attribute_is_required():
    obj = claim(constraints=[{}])
    at = "spec.devices.constraints[0].matchAttribute"
    assert found(obj, gates={"DRAConsumableCapacity": False}) == {(at, "Required")}


def test_the_number_of_constraints_and_configs_is_limited():
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


def test_default_values_are_not_a_change():
    old = claim(request(allocationMode="ExactCount", count=1, tolerations=[{"operator": "Equal"}]))
    assert found(claim(request(tolerations=[{}])), old=old) == set()


def test_the_status_of_a_new_claim_is_not_checked():
    assert found(claim(status={"reservedFor": [{}]})) == set()


REQUESTS = "spec.devices.requests"


def alternatives(*subrequests, **more):
    return {"name": "gpu", "firstAvailable": list(subrequests), **more}


def sub(name="large", **fields):
    return {"name": name, "deviceClassName": "gpu.example.com", **fields}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (request(), set()),
        (request(allocationMode="All"), set()),
        (request(allocationMode="ExactCount", count=2, adminAccess=True), set()),
        (request("GPU"), {("name", "Invalid")}),
        (request(deviceClassName=""), {("exactly.deviceClassName", "Required")}),
        (request(deviceClassName="GPU"), {("exactly.deviceClassName", "Invalid")}),
        (request(allocationMode="Some"), {("exactly.allocationMode", "NotSupported")}),
        (request(allocationMode="All", count=1), {("exactly.count", "Invalid")}),
        (request(count=-1), {("exactly.count", "Invalid")}),
        ({"name": "gpu"}, {("", "Required")}),
        ({"name": "gpu", "firstAvailable": []}, {("", "Required")}),
        (alternatives(sub(), sub("small", count=2)), set()),
        (alternatives(sub("A")), {("firstAvailable[0].name", "Invalid")}),
        (alternatives(sub(deviceClassName="")), {("firstAvailable[0].deviceClassName", "Required")}),
        (alternatives(sub(allocationMode="All", count=1)), {("firstAvailable[0].count", "Invalid")}),
        (alternatives(sub(tolerations=[{"key": "-"}])), {("firstAvailable[0].tolerations[0].key", "Invalid")}),
        (alternatives(*[sub(f"n{index}") for index in range(8)]), set()),
        (alternatives(*[sub(f"n{index}") for index in range(9)]), {("firstAvailable", "TooMany")}),
        (alternatives(sub(), exactly={"deviceClassName": "gpu.example.com"}), {("", "Invalid")}),
    ],
)
def test_rules_of_requests_are_checked(wanted, expected, version):
    assert found(claim(wanted), version) == {(f"{REQUESTS}[0].{field}".rstrip("."), kind) for field, kind in expected}


@pytest.mark.parametrize(("version", "field"), [("1.34", ".name"), ("1.35", ""), ("1.36", ""), ("1.37", "")])
def test_names_of_requests_and_alternatives_are_unique(version, field):
    assert found(claim(request(), request()), version) == {(f"{REQUESTS}[1]{field}", "Duplicate")}
    assert found(claim(alternatives(sub(), sub())), version) == {
        (f"{REQUESTS}[0].firstAvailable[1]{field}", "Duplicate")
    }


def test_the_number_of_requests_is_limited():
    requests = [request(f"gpu-{index}") for index in range(33)]
    assert found(claim(*requests[:-1])) == set()
    assert found(claim(*requests)) == {(REQUESTS, "TooMany")}


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ([{"cel": {"expression": "true"}}], set()),
        ([{"cel": {"expression": "1" * 10240}}], set()),
        ([{}], {("[0].cel", "Required")}),
        ([{"cel": {}}], {("[0].cel.expression", "Invalid")}),
        ([{"cel": {"expression": " \n"}}], {("[0].cel.expression", "Invalid")}),
        ([{"cel": {"expression": "1" * 10241}}], {("[0].cel.expression", "TooLong")}),
        ([{"cel": {"expression": "true"}}] * 33, {("", "TooMany")}),
    ],
)
def test_selectors_are_limited_and_not_empty(selectors, expected):
    assert found(claim(request(selectors=selectors))) == {
        (f"{REQUESTS}[0].exactly.selectors{field}", kind) for field, kind in expected
    }
    assert found(device_class(selectors=selectors)) == {(f"spec.selectors{field}", kind) for field, kind in expected}


@pytest.mark.parametrize(
    ("derived", "expected"),
    [
        ([{"name": "a.com/b", "expression": "1"}], set()),
        ([{"name": "a.com/sub", "expression": "1"}], {("[0].name", "Invalid")}),
        ([{"expression": "1"}], {("[0].name", "Required")}),
        ([{"name": "b", "expression": "1"}], {("[0].name", "Invalid")}),
        ([{"name": "a.com/b"}], {("[0].expression", "Required")}),
        ([{"name": "a.com/b", "expression": "1" * 10241}], {("[0].expression", "TooLong")}),
        ([{"name": "a.com/b", "expression": "1"}] * 2, {("[1]", "Duplicate")}),
        (
            [{"name": "a.com/b", "expression": "1"}] * 33,
            {("", "TooMany"), *((f"[{index}]", "Duplicate") for index in range(1, 33))},  # unlike other lists
        ),
    ],
)
def test_derived_attributes_came_with_1_37(derived, expected):
    constraints = [{"matchAttribute": "a.com/b"}, {"requests": ["other/large"], "matchAttribute": "a.com/sub"}]
    obj = claim(request(derivedAttributes=derived), alternatives(sub(), name="other"), constraints=constraints)
    at = f"{REQUESTS}[0].exactly.derivedAttributes"
    assert found(obj, "1.37") == {(f"{at}{field}", kind) for field, kind in expected}
    assert found(obj, "1.36") == {(at, "Unknown")}


@pytest.mark.parametrize("target", [None, ["other"], ["other/large"]])
def test_a_constraint_on_a_request_covers_its_alternatives(target):
    derived = [{"name": "a.com/b", "expression": "1"}]
    constraint = {"matchAttribute": "a.com/b"} | ({"requests": target} if target else {})
    wanted = alternatives(sub(derivedAttributes=derived), sub("small"), name="other")
    assert found(claim(wanted, constraints=[constraint]), "1.37") == set()
    constraint["requests"] = ["other/small"]
    at = f"{REQUESTS}[0].firstAvailable[0].derivedAttributes[0].name"
    assert found(claim(wanted, constraints=[constraint]), "1.37") == {(at, "Invalid")}


OPAQUE = "spec.devices.config[0].opaque"


def sized(size):
    """Return a JSON object of this many bytes."""
    return {"x": "y" * (size - len('{"x":""}'))}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"opaque": {"driver": "a.com", "parameters": {}}}, set()),
        ({"opaque": {"driver": "a.com", "parameters": sized(10240)}}, set()),
        ({"opaque": {"driver": "a.com", "parameters": sized(10241)}}, {("parameters", "TooLong")}),
        ({"opaque": {"driver": "a.com"}}, {("parameters", "Required")}),
        ({"opaque": {"driver": "a.com", "parameters": None}}, {("parameters", "Required")}),
        ({"opaque": {"driver": "a.com", "parameters": [1]}}, {("parameters", "Invalid")}),
        ({"opaque": {"driver": "a.com", "parameters": "text"}}, {("parameters", "Invalid")}),
        ({"opaque": {"driver": "a b", "parameters": {}}}, {("driver", "Invalid")}),
        ({"opaque": {"parameters": {}}}, {("driver", "Required")}),
    ],
)
def test_opaque_parameters_are_a_limited_object(config, expected, version):
    assert found(claim(config=[config]), version) == {(f"{OPAQUE}.{field}", kind) for field, kind in expected}


def test_a_configuration_needs_opaque_parameters():
    assert found(claim(config=[{}])) == {(OPAQUE, "Required")}


def test_sizes_are_bytes_of_compact_json():
    parameters = {"x": "é" * 5116}
    assert found(claim(config=[{"opaque": {"driver": "a.com", "parameters": parameters}}])) == set()
    parameters["x"] += "é"
    assert found(claim(config=[{"opaque": {"driver": "a.com", "parameters": parameters}}])) == {
        (f"{OPAQUE}.parameters", "TooLong")
    }


def test_stored_parameters_of_a_class_may_have_any_size():
    large = [{"opaque": {"driver": "a.com", "parameters": sized(20000)}}]
    old = device_class(config=large)
    assert found(device_class(config=large, extendedResourceName="a.com/gpu"), old=old) == set()
    assert found(device_class(config=large * 2), old=old) == {
        (f"spec.config[{index}].opaque.parameters", "TooLong") for index in range(2)
    }


@pytest.mark.parametrize("field", ["matchAttribute", "distinctAttribute"])
def test_since_1_37_the_domain_of_a_constraint_is_in_lower_case(field):
    request = {"name": "a", "exactly": {"deviceClassName": "gpu"}}
    devices = {"requests": [request], "constraints": [{field: "GPU.example.com/index"}]}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {"devices": devices},
    }
    (found,) = validate(claim, profile=ServerProfile.of("1.37"))
    assert str(found) == f"spec.devices.constraints[0].{field}: the domain must be in lower case, is 'GPU.example.com'"
    assert validate(claim, profile=ServerProfile.of("1.36")) == []
