from __future__ import annotations

import pytest

from dra_sdk.wire.resource import Device
from dra_sdk.wire.validation import ServerProfile, max_devices
from tests.wire.validation.objects import VERSIONS, changed, device, found, resource_slice

TAINTS = [{"key": "a", "effect": "NoExecute"}]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_good_slice_has_no_problems(version):
    assert found(resource_slice(device()), version) == found(resource_slice(), version) == set()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"driver": None}, {("driver", "Required")}),
        ({"driver": "a b"}, {("driver", "Invalid")}),
        ({"driver": "GPU.Example.com"}, set()),
        ({"pool": None}, {("pool.name", "Required"), ("pool.resourceSliceCount", "Invalid")}),
        ({"pool": {"name": "A", "resourceSliceCount": 1}}, {("pool.name", "Invalid")}),
        ({"pool": {"name": "a", "resourceSliceCount": 0}}, {("pool.resourceSliceCount", "Invalid")}),
        ({"pool": {"name": "a", "resourceSliceCount": 1, "generation": -1}}, {("pool.generation", "Invalid")}),
        ({"nodeName": None}, {("", "Required")}),
        ({"nodeName": ""}, {("", "Required"), ("nodeName", "Invalid")}),
        ({"nodeName": "A"}, {("nodeName", "Invalid")}),
        ({"nodeName": None, "allNodes": True}, set()),
        ({"allNodes": True}, {("", "Invalid")}),
        ({"allNodes": False}, {("allNodes", "Invalid")}),
        ({"perDeviceNodeSelection": False}, {("perDeviceNodeSelection", "Invalid")}),
        ({"devices": [device(), device("b"), device()]}, None),
    ],
)
def test_rules_of_the_spec_are_checked(spec, expected, version):
    if expected is None:
        expected = {("devices[2].name" if version == "1.34" else "devices[2]", "Duplicate")}
    assert found(resource_slice(**spec), version) == {(f"spec.{field}".rstrip("."), kind) for field, kind in expected}


@pytest.mark.parametrize(
    ("fields", "limits"),
    [
        ({}, (128, 128, 128, 128)),
        ({"attributes": {"a": {"int": 1}}}, (128, 128, 128, 128)),
        ({"taints": TAINTS}, (128, 64, 64, 64)),
        ({"consumesCounters": [{"counterSet": "a", "counters": {"b": {"value": "1"}}}]}, (128, 64, 64, 64)),
        ({"attributes": {"a": {"ints": [1]}}}, (128, 128, 64, 64)),
    ],
)
def test_the_limit_of_devices_depends_on_their_fields(fields, limits):
    devices = [Device.model_validate(device()), Device.model_validate(device("b", **fields))]
    assert tuple(max_devices(devices, ServerProfile.of(version)) for version in VERSIONS) == limits


@pytest.mark.parametrize("version", VERSIONS)
def test_a_slice_with_too_many_devices_is_refused(version):
    devices = [device(f"gpu-{index}") for index in range(129)]
    assert found(resource_slice(*devices[:-1]), version) == set()
    assert found(resource_slice(*devices), version) == {("spec.devices", "TooMany")}
    advanced = [device("tainted", taints=TAINTS), *devices[:64]]
    expected = set() if version == "1.34" else {("spec.devices", "TooMany")}
    assert found(resource_slice(*advanced), version) == expected


@pytest.mark.parametrize(
    ("path", "value"), [(("driver",), "other.com"), (("pool", "name"), "other"), (("nodeName",), "other")]
)
def test_driver_pool_and_node_must_not_change(path, value):
    old = resource_slice(device())
    assert found(changed(old, "spec", *path, to=value), old=old) == {(".".join(("spec", *path)), "Invalid")}


def test_devices_and_generation_may_change():
    old = resource_slice(device())
    new = changed(
        resource_slice(device("b"), device("c")),
        "spec",
        "pool",
        to={"name": "node-a", "generation": 2, "resourceSliceCount": 3},
    )
    assert found(new, old=old) == set()


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        (["NodePrepareResources", "NodeUnprepareResources"], set()),
        (["*"], set()),
        (["NodeUnprepareResources"], set()),
        (["*", "NodePrepareResources"], set()),
        (["NodePrepareResources"], {("", "Invalid")}),
        (["*", "*"], {("[1]", "Duplicate")}),
        (["*", "Node"], {("[1]", "NotSupported")}),
    ],
)
def test_skipped_operations_came_with_1_37(operations, expected):
    at, obj = "spec.skipNodeOperations", resource_slice(device(), skipNodeOperations=operations)
    assert found(obj, "1.37") == {(f"{at}{field}", kind) for field, kind in expected}
    assert found(obj, "1.36") == {(at, "Unknown")}


def partition(name="type", value=None):
    return device(
        consumesCounters=[{"counterSet": "a", "counters": {"b": {"value": "1"}}}],
        attributes={name: value or {"string": "half"}},
    )


@pytest.mark.parametrize(
    ("devices", "name", "expected"),
    [
        ([partition(), device("whole")], "gpu.example.com/type", set()),
        ([partition("gpu.example.com/type")], "gpu.example.com/type", set()),
        ([partition("other.com/type")], "other.com/type", set()),
        ([partition()], "other.com/type", {("devices[0].attributes[other.com/type]", "Required")}),
        (
            [partition(value={"int": 1})],
            "gpu.example.com/type",
            {("devices[0].attributes[gpu.example.com/type]", "Invalid")},
        ),
        ([device()], "gpu.example.com/type", {("partitionTypeAttribute", "Invalid")}),
        ([partition()], "type", {("partitionTypeAttribute", "Invalid")}),
    ],
)
def test_the_type_of_partitions_came_with_1_37(devices, name, expected):
    obj = resource_slice(*devices, partitionTypeAttribute=name)
    assert found(obj, "1.37", gates={"DRAPartitionableDevicesType": True}) == {
        (f"spec.{field}", kind) for field, kind in expected
    }
    assert ("spec.partitionTypeAttribute", "Unknown") in found(obj, "1.36")
