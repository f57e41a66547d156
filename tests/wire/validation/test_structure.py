from __future__ import annotations

import pytest

from dra_sdk.wire.resource.device import Device
from dra_sdk.wire.validation import ServerProfile, validate
from dra_sdk.wire.validation.structure import read_as, read_object
from tests.wire.validation.objects import VERSIONS, changed, claim, device, found, resource_slice, taint_rule

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
        (("metadata", "lables"), {}, ("metadata.lables", "Unknown", "unknown field")),
        (("sepc",), {}, ("sepc", "Unknown", "unknown field")),
    ],
)
def test_wrong_types_and_unknown_fields(path, value, problem):
    good = resource_slice(device(attributes={"a": {"int": 1}}, capacity={"m": {"value": "1"}}))
    (got,) = validate(changed(good, *path, to=value), profile=NEW)
    assert (got.field, str(got.type), got.detail) == problem


def test_a_wrong_type_ends_the_matter_and_an_unknown_field_does_not():
    assert found(resource_slice(driver=1, pool={"nmae": "x"})) == {
        ("spec.driver", "TypeInvalid"),
        ("spec.pool.nmae", "Unknown"),
    }
    assert found(resource_slice(driver="a b", nodes="x")) == {("spec.driver", "Invalid"), ("spec.nodes", "Unknown")}


@pytest.mark.parametrize("value", ["1", 1, "1.5Gi", 0.5, "1e3", "-100m"])
def test_quantities_in_every_notation(value):
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
def test_what_is_none_of_our_objects(obj, field, kind):
    value, problems = read_object(obj, NEW)
    assert value is None
    assert [(problem.field, str(problem.type)) for problem in problems] == [(field, kind)]


@pytest.mark.parametrize("api_version", ["v1", "v1beta2", "v1alpha3"])
def test_where_taint_rules_are_served(api_version):
    served = {"v1": ["1.37"], "v1beta2": ["1.36", "1.37"], "v1alpha3": list(VERSIONS)}[api_version]
    for version in VERSIONS:
        expected = set() if version in served else {("apiVersion", "NotSupported")}
        assert found(taint_rule(api_version), version) == expected


def test_other_kinds_may_be_in_v1beta2():
    assert found(claim() | {"apiVersion": "resource.k8s.io/v1beta2"}) == set()


def test_a_part_of_an_object():
    value, problems = read_as(Device, {"name": "gpu-0", "colour": "red"}, NEW)
    assert value is not None
    assert value.name == "gpu-0"
    assert [problem.field for problem in problems] == ["colour"]
