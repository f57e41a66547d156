from __future__ import annotations

import pytest

from tests.wire.validation.objects import VERSIONS, device, found, resource_slice

AT = "spec.devices[0]"


def ints(count, prefix="a"):
    return {f"{prefix}{index}": {"int": index} for index in range(count)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["", "GPU", "gpu.0", "g" * 64])
def test_names(name, version):
    assert found(resource_slice(device(name)), version) == {(f"{AT}.name", "Invalid")}


@pytest.mark.parametrize("version", VERSIONS)
def test_attributes_and_capacities_together(version):
    capacity = {"memory": {"value": "1Gi"}}
    assert found(resource_slice(device(attributes=ints(31), capacity=capacity)), version) == set()
    assert found(resource_slice(device(attributes=ints(32), capacity=capacity)), version) == {(AT, "Invalid")}


@pytest.mark.parametrize(("version", "expected"), [("1.36", {(AT, "Invalid")}), ("1.37", {(AT, "Invalid")})])
def test_values_of_attributes(version, expected):
    fits = {"ids": {"ints": list(range(47))}, **ints(1)}
    assert found(resource_slice(device(attributes=fits)), version) == set()
    assert found(resource_slice(device(attributes={**fits, **ints(1, "b")})), version) == expected


def test_keys_of_attributes_and_capacities():
    obj = resource_slice(device(attributes={"a-b": {"int": 1}}, capacity={"c-d": {"value": "1"}}))
    assert found(obj, "1.36") == {(f"{AT}.attributes", "Invalid"), (f"{AT}.capacity", "Invalid")}
    assert found(obj, "1.35") == {(f"{AT}.attributes[a-b]", "Invalid"), (f"{AT}.capacity[c-d]", "Invalid")}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ({"nodeName": "a"}, set()),
        ({"allNodes": True}, set()),
        ({"nodeSelector": {"nodeSelectorTerms": [{}, {}]}}, set()),
        ({}, {("", "Required")}),
        ({"nodeName": "a", "allNodes": True}, {("", "Invalid")}),
        ({"nodeName": ""}, {("", "Required"), (".nodeName", "Invalid")}),
        ({"nodeName": "A"}, {(".nodeName", "Invalid")}),
        ({"allNodes": False}, {("", "Required"), (".allNodes", "Invalid")}),
        ({"nodeSelector": {}}, {(".nodeSelector.nodeSelectorTerms", "Required")}),
    ],
)
def test_nodes_of_each_device(nodes, expected, version):
    obj = resource_slice(device(**nodes), nodeName=None, perDeviceNodeSelection=True)
    assert found(obj, version) == {(f"{AT}{field}", kind) for field, kind in expected}


@pytest.mark.parametrize("nodes", [{"nodeName": "a"}, {"allNodes": False}, {"nodeSelector": {}}])
def test_nodes_of_a_device_need_a_slice_that_leaves_them_to_it(nodes):
    assert found(resource_slice(device(**nodes))) == {(AT, "Invalid")}
