from __future__ import annotations

from copy import deepcopy

import pytest

from dra_sdk.errors import InvalidObjectError
from dra_sdk.wire.validation import ServerProfile, check, check_device, title, validate
from tests.wire.validation.objects import changed, claim, device, device_class, found, resource_slice, taint_rule

DRIVER = "gpu.example.com"


def test_a_good_object_has_no_problems():
    for obj in (resource_slice(device()), claim(), device_class(), taint_rule()):
        assert validate(obj) == []
        check(obj)


def test_the_object_is_not_changed():
    obj = claim()
    before = deepcopy(obj)
    validate(obj, old=obj)
    assert obj == before


def test_each_problem_is_reported_once():
    obj = changed(claim(), "metadata", "labels", to={"-": "a"})
    problems = validate(obj, old=claim())
    assert len(problems) == len(set(problems)) == 1


def test_check_names_object_field_and_limit():
    obj = resource_slice(device(attributes={"model": {"string": "x" * 70}}), device("gpu-1", attributes={"model": {}}))
    with pytest.raises(InvalidObjectError) as refused:
        check(obj, ServerProfile.of("1.36"))
    assert refused.value.subject == "ResourceSlice node-a-gpu"
    assert refused.value.problems == [
        "device gpu-0: attribute model: string: must be at most 64 bytes, has 70",
        "device gpu-1: attribute model: must have exactly one value, has none",
    ]


@pytest.mark.parametrize("subresource", ["scale", "status"])
def test_an_unknown_subresource_is_a_value_error(subresource):
    obj = resource_slice(device())
    with pytest.raises(ValueError, match=f"ResourceSlice has no subresource '{subresource}'"):
        validate(obj, old=obj, subresource=subresource)


def test_a_status_can_only_be_updated():
    with pytest.raises(ValueError, match="lacks the old object"):
        validate(claim(), subresource="status")


def test_a_stored_object_is_read_leniently():
    old = resource_slice(device(fromTheFuture=1))
    assert found(resource_slice(device()), old=old) == set()


def test_a_good_device_is_accepted():
    check_device(device(attributes={"model": {"string": "x"}}, capacity={"memory": {"value": "1Gi"}}), DRIVER)
    check_device(device(nodeName="node-a"), DRIVER)


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (
            device("GPU"),
            "name: must be a DNS label (lower-case letters, digits and inner '-', at most 63 characters), is 'GPU'",
        ),
        (
            device(attributes={"model": {"string": "x" * 70}}),
            "attribute model: string: must be at most 64 bytes, has 70",
        ),
        (device(colour="red"), "colour: unknown field"),
        (
            device(capacity={"memory": {"value": "a lot"}}),
            "capacity memory: value: must be a quantity such as 4, 500m or 80Gi, is 'a lot'",
        ),
        (
            device(nodeName="a", allNodes=True),
            "must have only one of nodeName, nodeSelector, allNodes, has nodeName and allNodes",
        ),
    ],
)
def test_a_broken_device_is_named_with_its_driver(broken, problem):
    with pytest.raises(InvalidObjectError) as refused:
        check_device(broken, DRIVER)
    assert refused.value.subject == f"device {broken['name']} of driver {DRIVER}"
    assert refused.value.problems == [problem]


@pytest.mark.parametrize("field", ["attributes", "capacity"])
def test_a_name_with_and_without_domain_is_refused(field):
    value = {"int": 1} if field == "attributes" else {"value": "1"}
    with pytest.raises(InvalidObjectError, match=f"{DRIVER}/memory: 'memory' was given before"):
        check_device(device(**{field: {"memory": value, f"{DRIVER}/memory": value}}), DRIVER)
    check_device(device(**{field: {"memory": value, "other.com/memory": value}}), DRIVER)


def test_a_device_is_checked_by_the_rules_of_the_release():
    listed = device(attributes={"ids": {"ints": [1]}})
    check_device(listed, DRIVER, ServerProfile.of("1.36"))
    with pytest.raises(InvalidObjectError, match=r"attribute ids: ints: unknown field before Kubernetes 1\.36"):
        check_device(listed, DRIVER, ServerProfile.of("1.35"))


@pytest.mark.parametrize("driver", ["", "a b", "a" * 64])
def test_the_driver_needs_a_name(driver):
    with pytest.raises(InvalidObjectError, match="driver: must"):
        check_device(device(), driver)


@pytest.mark.parametrize(
    ("obj", "name"),
    [
        ({"kind": "ResourceClaim", "metadata": {"name": "a"}}, "ResourceClaim a"),
        ({"kind": "ResourceClaim", "metadata": {"generateName": "a-"}}, "ResourceClaim a-*"),
        ({"metadata": None}, "object *"),
        ([], "object"),
    ],
)
def test_a_title_has_kind_and_name(obj, name):
    assert title(obj) == name
