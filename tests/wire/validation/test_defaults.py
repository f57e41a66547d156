from __future__ import annotations

import pytest

from dra_sdk.wire.resource import ResourceClaim, ResourceClaimTemplate, ResourceSlice
from dra_sdk.wire.validation.defaults import set_defaults
from tests.wire.validation.objects import claim, device, request, resource_slice, template

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
def test_how_many_devices_a_request_asks_for(given, mode, count):
    alternative = {"name": "a", "firstAvailable": [{"name": "b", **given}]}
    requests = defaulted(ResourceClaim, claim(request(**given), alternative)).spec.devices.requests
    for each in (requests[0].exactly, requests[1].first_available[0]):
        assert (each.allocation_mode, each.count) == (mode, count)


def test_tolerations_compare_for_equality():
    for model, obj in ((ResourceClaim, claim), (ResourceClaimTemplate, template)):
        value = defaulted(model, obj(**({} if obj is claim else {"requests": [request(tolerations=[{}])]})))
        devices = value.spec.devices if obj is claim else value.spec.spec.devices
        assert all(each.operator == "Equal" for each in devices.requests[0].exactly.tolerations or ())
    allocated = {"allocation": {"devices": {"results": [{"tolerations": [{}, {"operator": "Exists"}]}]}}}
    result = defaulted(ResourceClaim, claim(status=allocated)).status.allocation.devices.results[0]
    assert [each.operator for each in result.tolerations] == ["Equal", "Exists"]


def test_a_mapping_counts_once():
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
