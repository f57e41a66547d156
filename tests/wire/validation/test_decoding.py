from __future__ import annotations

import pytest

from dra_sdk.wire.resource import ResourceClaim, ResourceClaimTemplate, ResourceSlice
from dra_sdk.wire.resource.slices import Device
from dra_sdk.wire.validation import Problem, ProblemType, ServerProfile, validate
from dra_sdk.wire.validation.decoding import decoded, read_as, read_object, set_defaults, without_disabled
from tests.wire.validation.objects import (
    VERSIONS,
    changed,
    claim,
    device,
    found,
    request,
    resource_slice,
    taint_rule,
    template,
)

NEW = ServerProfile.of("1.37")


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("spec", "driver"), 1, ("spec.driver", "TypeInvalid", "must be a string, is 1")),
        (
            ("spec", "pool", "generation"),
            "1",
            ("spec.pool.generation", "TypeInvalid", "must be a whole number, is '1'"),
        ),
        (
            ("spec", "pool", "generation"),
            1.5,
            ("spec.pool.generation", "TypeInvalid", "must be a whole number, is 1.5"),
        ),
        (
            ("spec", "pool", "generation"),
            True,
            ("spec.pool.generation", "TypeInvalid", "must be a whole number, is True"),
        ),
        (
            ("spec", "pool", "generation"),
            2**63,
            ("spec.pool.generation", "TypeInvalid", f"input should be less than or equal to {2**63 - 1}, is {2**63}"),
        ),
        (("spec", "allNodes"), "true", ("spec.allNodes", "TypeInvalid", "must be true or false, is 'true'")),
        (("spec", "devices"), {}, ("spec.devices", "TypeInvalid", "must be a list, is {}")),
        (("spec", "devices", 0), "gpu-0", ("spec.devices[0]", "TypeInvalid", "must be an object, is 'gpu-0'")),
        (
            ("spec", "devices", 0, "attributes"),
            [],
            ("spec.devices[0].attributes", "TypeInvalid", "must be an object, is []"),
        ),
        (
            ("spec", "devices", 0, "attributes", "a"),
            1,
            ("spec.devices[0].attributes[a]", "TypeInvalid", "must be an object, is 1"),
        ),
        (
            ("spec", "devices", 0, "attributes", "a", "int"),
            "1",
            ("spec.devices[0].attributes[a].int", "TypeInvalid", "must be a whole number, is '1'"),
        ),
        (
            ("spec", "devices", 0, "capacity", "m"),
            {"value": "1 Gi"},
            (
                "spec.devices[0].capacity[m].value",
                "TypeInvalid",
                "must be a quantity such as 4, 500m or 80Gi, is '1 Gi'",
            ),
        ),
        (
            ("spec", "devices", 0, "taints"),
            [{"timeAdded": "today"}],
            (
                "spec.devices[0].taints[0].timeAdded",
                "TypeInvalid",
                "must be a time such as 2026-01-31T12:00:00Z, is 'today'",
            ),
        ),
        (("spec", "devices", 0, "basic"), {}, ("spec.devices[0].basic", "Unknown", "unknown field")),
        (
            ("spec", "devices", 0, "attributes", "a", "integer"),
            1,
            ("spec.devices[0].attributes[a].integer", "Unknown", "unknown field"),
        ),
        (("metadata", "lables"), {}, ("metadata.lables", "Unknown", "unknown field; did you mean labels?")),
        (("sepc",), {}, ("sepc", "Unknown", "unknown field; did you mean spec?")),
    ],
)
def test_wrong_types_and_unknown_fields_are_reported(path, value, problem):
    good = resource_slice(device(attributes={"a": {"int": 1}}, capacity={"m": {"value": "1"}}))
    (got,) = validate(changed(good, *path, to=value), profile=NEW)
    assert (got.field, str(got.type), got.detail) == problem


def test_a_wrong_type_ends_the_check_and_an_unknown_field_does_not():
    assert found(resource_slice(driver=1, pool={"nmae": "x"})) == {
        ("spec.driver", "TypeInvalid"),
        ("spec.pool.nmae", "Unknown"),
    }
    assert found(resource_slice(driver="a b", nodes="x")) == {("spec.driver", "Invalid"), ("spec.nodes", "Unknown")}


@pytest.mark.parametrize("value", ["1", 1, "1.5Gi", 0.5, "1e3", "-100m"])
def test_quantities_are_read_in_every_notation(value):
    assert found(resource_slice(device(capacity={"m": {"value": value}}))) == set()


def test_nulls_are_absent_fields():
    obj = resource_slice(device(taints=None, attributes={"a": {"int": 1, "ints": None}}), sharedCounters=None)
    obj["spec"]["nodeSelector"] = None
    assert found(obj) == set()


@pytest.mark.parametrize(
    ("obj", "field", "kind"),
    [
        ([], "", "TypeInvalid"),
        ("text", "", "TypeInvalid"),
        ({}, "kind", "Required"),
        ({"kind": "Pod", "apiVersion": "v1"}, "kind", "NotSupported"),
        ({"kind": "ResourceClaim"}, "apiVersion", "Required"),
        ({"kind": "ResourceClaim", "apiVersion": "v1"}, "apiVersion", "NotSupported"),
        ({"kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1beta1"}, "apiVersion", "NotSupported"),
    ],
)
def test_objects_of_other_kinds_are_refused(obj, field, kind):
    value, problems = read_object(obj, NEW)
    assert value is None
    assert [(problem.field, str(problem.type)) for problem in problems] == [(field, kind)]


@pytest.mark.parametrize("api_version", ["v1", "v1beta2", "v1alpha3"])
def test_the_api_versions_of_taint_rules_differ_by_release(api_version):
    served = {"v1": ["1.37"], "v1beta2": ["1.36", "1.37"], "v1alpha3": list(VERSIONS)}[api_version]
    for version in VERSIONS:
        expected = set() if version in served else {("apiVersion", "NotSupported")}
        assert found(taint_rule(api_version), version) == expected


def test_v1beta2_is_accepted():
    assert found(claim() | {"apiVersion": "resource.k8s.io/v1beta2"}) == set()


def test_a_part_of_an_object_is_read():
    value, problems = read_as(Device, {"name": "gpu-0", "colour": "red"}, NEW)
    assert value is not None
    assert value.name == "gpu-0"
    assert [problem.field for problem in problems] == ["colour"]


MAPPING = {"nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "cores"}}}


def defaulted(model, obj):
    value = model.model_validate(obj)
    set_defaults(value)
    return value


@pytest.mark.parametrize(
    ("given", "mode", "count"),
    [
        ({}, "ExactCount", 1),
        ({"count": 2}, "ExactCount", 2),
        ({"allocationMode": "All"}, "All", 0),
        ({"allocationMode": "Other"}, "Other", 0),
    ],
)
def test_mode_and_count_have_defaults(given, mode, count):
    alternative = {"name": "a", "firstAvailable": [{"name": "b", **given}]}
    requests = defaulted(ResourceClaim, claim(request(**given), alternative)).spec.devices.requests
    for asked in (requests[0].exactly, requests[1].first_available[0]):
        assert (asked.allocation_mode, asked.count) == (mode, count)


def test_the_default_operator_of_tolerations_is_equal():
    for model, obj in ((ResourceClaim, claim), (ResourceClaimTemplate, template)):
        value = defaulted(model, obj(**({} if obj is claim else {"requests": [request(tolerations=[{}])]})))
        devices = value.spec.devices if obj is claim else value.spec.spec.devices
        assert all(toleration.operator == "Equal" for toleration in devices.requests[0].exactly.tolerations or ())
    allocated = {"allocation": {"devices": {"results": [{"tolerations": [{}, {"operator": "Exists"}]}]}}}
    result = defaulted(ResourceClaim, claim(status=allocated)).status.allocation.devices.results[0]
    assert [toleration.operator for toleration in result.tolerations] == ["Equal", "Exists"]


def test_the_default_multiplier_is_one():
    value = defaulted(ResourceSlice, resource_slice(device(**MAPPING)))
    assert value.spec.devices[0].node_allocatable_resource_mappings["cpu"].allocation_multiplier == 1


def test_a_missing_generation_is_stored_as_zero():
    pool = {"name": "pool", "resourceSliceCount": 1}
    assert defaulted(ResourceSlice, resource_slice(pool=pool)).to_json()["spec"]["pool"] == {**pool, "generation": 0}


def test_a_missing_amount_is_stored_as_zero():
    empty = device(capacity={"memory": {}}, consumesCounters=[{"counterSet": "board", "counters": {"slices": {}}}])
    content = defaulted(ResourceSlice, resource_slice(empty)).to_json()["spec"]["devices"][0]
    assert content["capacity"] == {"memory": {"value": "0"}}
    assert content["consumesCounters"][0]["counters"] == {"slices": {"value": "0"}}
    counters = defaulted(ResourceSlice, resource_slice(sharedCounters=[{"name": "board", "counters": {"slices": {}}}]))
    assert counters.to_json()["spec"]["sharedCounters"][0]["counters"] == {"slices": {"value": "0"}}


NOW = "2026-01-01T00:00:00Z"
TAINT = {"key": "example.com/hot", "effect": "NoSchedule"}
OLDER_SERVER = ServerProfile.of("1.35")
SERVER = ServerProfile.of("1.36")


def read(obj, profile=SERVER):
    found, problems = decoded(obj, profile, NOW)
    assert found is not None
    assert problems == []
    return found


def test_decoding_fills_defaults_and_makes_quantities_canonical():
    body = resource_slice(device(capacity={"a": {"value": "2048Ki"}}, taints=[TAINT]))
    (found,) = read(body)["spec"]["devices"]
    assert found["capacity"] == {"a": {"value": "2Mi"}}
    assert found["taints"] == [{**TAINT, "timeAdded": NOW}]
    assert read(claim())["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1


def test_a_given_time_is_kept():
    given = {**TAINT, "timeAdded": "2020-01-01T00:00:00Z"}
    assert read(resource_slice(device(taints=[given])))["spec"]["devices"][0]["taints"] == [given]
    rule = taint_rule(taint=given)
    assert read(rule, ServerProfile.of("1.37"))["spec"]["taint"] == given


def test_decoding_twice_changes_nothing():
    value = read(claim(request(tolerations=[{"key": "a"}], capacity={"requests": {"m": "1024Mi"}})))
    assert read(value) == value


def test_unknown_fields_are_reported_and_dropped():
    found, problems = decoded(claim(request(colour="red")), SERVER, NOW)
    assert found == read(claim())
    field = "spec.devices.requests[0].exactly.colour"
    assert problems == [Problem(field, ProblemType.UNKNOWN, "unknown field")]


def test_a_wrong_type_cannot_be_read():
    found, problems = decoded(claim(request(count="1")), SERVER, NOW)
    assert found is None
    assert [problem.type for problem in problems] == [ProblemType.TYPE_INVALID]


def test_free_form_json_is_kept():
    parameters = {"a": None, "b": [None, {"c": 1.0}], "kind": "K"}
    body = claim(config=[{"opaque": {"driver": "d.example.com", "parameters": parameters}}])
    assert read(body)["spec"]["devices"]["config"][0]["opaque"]["parameters"] == parameters


def test_disabled_fields_are_dropped_unless_they_are_in_use():
    body, plain = resource_slice(device(taints=[TAINT])), resource_slice(device())
    assert without_disabled(body, None, OLDER_SERVER) == plain
    assert without_disabled(body, plain, OLDER_SERVER) == plain
    assert without_disabled(body, body, OLDER_SERVER) == body
    assert without_disabled(body, None, SERVER) == body


def test_features_are_dropped_one_by_one():
    body = resource_slice(device(taints=[TAINT], allowMultipleAllocations=True))
    stored = resource_slice(device(allowMultipleAllocations=True))
    assert without_disabled(body, stored, OLDER_SERVER) == stored
