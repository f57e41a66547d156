from __future__ import annotations

import pytest

from dra_sdk.wire.conversion import V1, older_version, original_path, reading_problem, to_v1
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation import validate

BETA1 = "resource.k8s.io/v1beta1"


def obj(kind, spec, version=BETA1):
    metadata = {"name": "a", "namespace": "b"} if kind.startswith("ResourceClaim") else {"name": "a"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


CLAIM = {
    "devices": {
        "requests": [
            {"name": "a", "deviceClassName": "gpu", "count": 2, "allocationMode": "ExactCount"},
            {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "gpu"}]},
        ],
        "constraints": [{"requests": ["a"], "matchAttribute": "example.com/x"}],
    }
}


@pytest.mark.parametrize(("kind", "spec"), [("ResourceClaim", CLAIM), ("ResourceClaimTemplate", {"spec": CLAIM})])
def test_a_request_of_v1beta1_has_its_fields_in_exactly(kind, spec):
    converted = to_v1(obj(kind, spec))
    devices = (converted["spec"]["spec"] if "spec" in spec else converted["spec"])["devices"]
    exactly = {"deviceClassName": "gpu", "count": 2, "allocationMode": "ExactCount"}
    assert devices["requests"] == [{"name": "a", "exactly": exactly}, CLAIM["devices"]["requests"][1]]
    assert devices["constraints"] == CLAIM["devices"]["constraints"]
    assert converted["apiVersion"] == V1
    assert validate(converted, profile=ServerProfile.of("1.37")) == []


def test_a_device_of_v1beta1_has_its_fields_beside_its_name():
    attributes = {"model": {"string": "a100"}}
    spec = {
        "driver": "gpu.example.com",
        "nodeName": "node",
        "pool": {"name": "p", "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "basic": {"attributes": attributes}}, {"name": "gpu-1"}],
    }
    converted = to_v1(obj("ResourceSlice", spec))
    assert converted["spec"]["devices"] == [{"name": "gpu-0", "attributes": attributes}, {"name": "gpu-1"}]
    assert validate(converted, profile=ServerProfile.of("1.37")) == []


def test_v1beta2_changes_its_name_only():
    spec = {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]}}
    converted = to_v1(obj("ResourceClaim", spec, "resource.k8s.io/v1beta2"))
    assert converted == obj("ResourceClaim", spec, V1)


@pytest.mark.parametrize(
    "value",
    [
        obj("ResourceClaim", {}, V1),
        obj("DeviceTaintRule", {}, "resource.k8s.io/v1beta2"),
        obj("Pod", {}, "v1"),
        {"kind": "ResourceClaim"},
        {"apiVersion": BETA1, "kind": ["ResourceClaim"]},
    ],
)
def test_other_objects_stay(value):
    assert to_v1(value) is value
    assert older_version(value) == ""
    assert reading_problem(value) is None


@pytest.mark.parametrize("value", [3, "text", [obj("ResourceClaim", {}, BETA1)]])
def test_what_is_no_object_is_refused(value):
    assert to_v1(value) is value
    assert older_version(value) == ""
    problem = reading_problem(value)
    assert problem is not None
    assert problem.detail.startswith("must be an object, is ")
    has_hint = problem.detail.endswith("write several objects as documents or as items of a List")
    assert has_hint is isinstance(value, list)


@pytest.mark.parametrize("spec", [None, [], {"devices": 3}, {"devices": {"requests": 3}}, {"devices": [3]}])
@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass"])
def test_wrong_types_stay_for_the_validation(kind, spec):
    assert to_v1(obj(kind, spec))["spec"] == spec
    assert to_v1(obj(kind, {"spec": spec}))["spec"] == {"spec": spec}


def test_alpha_versions_are_refused_with_the_way_out():
    problem = reading_problem(obj("ResourceClass", {}, "resource.k8s.io/v1alpha2"))
    assert problem is not None
    assert "take the manifests of a release of the driver that supports v1" in problem.detail
    assert reading_problem(obj("ResourceClaim", {}, "resource.k8s.io/v1alpha3")) is not None
    assert reading_problem(obj("DeviceTaintRule", {}, "resource.k8s.io/v1alpha3")) is None


def test_the_place_in_the_file():
    assert original_path(BETA1, ["spec", "devices", "requests", 0, "exactly", "count"]) == [
        "spec",
        "devices",
        "requests",
        0,
        "count",
    ]
    assert original_path(BETA1, ["spec", "devices", 3, "attributes"]) == ["spec", "devices", 3, "basic", "attributes"]
    assert original_path(BETA1, ["spec", "devices", 3, "name"]) == ["spec", "devices", 3, "name"]
    assert original_path("", ["spec", "exactly"]) == ["spec", "exactly"]
