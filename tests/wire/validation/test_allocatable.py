from __future__ import annotations

import pytest

from tests.wire.validation.objects import device, found, resource_slice

OLD, NEW = "spec.devices[0].nodeAllocatableResourceMappings", "spec.devices[0].nodeAllocatableResources"


def mapped(**mappings):
    return resource_slice(device(capacity={"cores": {"value": "4"}}, nodeAllocatableResourceMappings=mappings))


def accounted(name="cpu", **resource):
    return resource_slice(device(capacity={"cores": {"value": "4"}}, nodeAllocatableResources={name: resource}))


@pytest.mark.parametrize(
    ("mappings", "expected"),
    [
        ({"cpu": {"capacityKey": "cores"}}, set()),
        ({"memory": {"allocationMultiplier": "1Gi"}}, set()),
        ({"cpu": {}}, set()),  # the multiplier is 1 unless given
        ({"example.com/gpu": {"allocationMultiplier": "1"}}, {("[example.com/gpu]", "Invalid")}),
        ({"cpu": {"allocationMultiplier": "0"}}, {("[cpu].allocationMultiplier", "Invalid")}),
        ({"cpu": {"capacityKey": ""}}, {("[cpu].capacityKey", "Invalid")}),
        ({"cpu": {"capacityKey": "threads"}}, {("[cpu].capacityKey", "NotFound")}),
    ],
)
def test_mappings_of_1_36(mappings, expected):
    assert found(mapped(**mappings), "1.36") == {(f"{OLD}{field}", kind) for field, kind in expected}
    for version in ("1.35", "1.37"):
        assert found(mapped(**mappings), version) == {(OLD, "Unknown")}


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ({"mapping": {"capacityKey": "cores", "capacityMultiplier": "2"}}, set()),
        ({"mapping": {"deviceMultiplier": "2"}, "overhead": {"perPod": "1"}}, set()),
        ({"overhead": {"perPod": "0", "perContainer": "100m"}}, set()),
        ({"name": "hugepages-2Mi", "overhead": {"perPod": "2Mi"}}, set()),
        ({"name": "ephemeral-storage", "overhead": {"perPod": "1"}}, {("", "Invalid")}),
        ({}, {("", "Required")}),
        ({"mapping": {}}, {(".mapping", "Invalid")}),
        ({"mapping": {"capacityKey": "cores"}}, {(".mapping.capacityMultiplier", "Required")}),
        ({"mapping": {"capacityMultiplier": "1", "deviceMultiplier": "1"}}, {(".mapping.capacityKey", "Required")}),
        (
            {"mapping": {"capacityKey": "cores", "capacityMultiplier": "1", "deviceMultiplier": "1"}},
            {(".mapping", "Invalid")},
        ),
        ({"mapping": {"capacityKey": "threads", "capacityMultiplier": "1"}}, {(".mapping.capacityKey", "NotFound")}),
        (
            {"mapping": {"capacityKey": "cores", "capacityMultiplier": "0"}},
            {(".mapping.capacityMultiplier", "Invalid")},
        ),
        ({"mapping": {"deviceMultiplier": "-1"}}, {(".mapping.deviceMultiplier", "Invalid")}),
        ({"overhead": {}}, {(".overhead", "Invalid")}),
        ({"overhead": {"perPod": "-1"}}, {(".overhead.perPod", "Invalid")}),
        ({"overhead": {"perContainer": "-1"}}, {(".overhead.perContainer", "Invalid")}),
    ],
)
def test_resources_of_1_37(resource, expected):
    name = resource.get("name", "cpu")
    assert found(accounted(**resource), "1.37") == {(f"{NEW}[{name}]{field}", kind) for field, kind in expected}
    assert found(accounted(**resource), "1.36") == {(NEW, "Unknown")}
