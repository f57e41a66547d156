"""The models of API objects."""

from __future__ import annotations

from dra_sdk.wire.resource import Device, ResourceClaim, ResourceSlice
from dra_sdk.wire.resource.claims import DeviceRequest


def test_every_attribute_and_capacity_is_read_and_written():
    obj = {
        "name": "gpu-0",
        "attributes": {
            "a": {"int": 1}, "b": {"bool": False}, "c": {"string": "x"}, "d": {"version": "1.0.0"},
            "e": {"ints": [1]}, "f": {"bools": [True]}, "g": {"strings": ["x"]}, "h": {"versions": ["1.0.0"]},
        },
        "capacity": {"memory": {"value": "80Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi"}}}},
    }  # fmt: skip
    device = Device.model_validate(obj)
    assert device.attributes is not None
    assert (device.attributes["a"].int_value, device.attributes["b"].bool_value) == (1, False)
    assert device.to_json() == obj


def test_an_empty_list_differs_from_an_absent_one():
    spec = ResourceSlice.model_validate({"spec": {"devices": []}}).spec
    assert spec.devices == []
    assert spec.shared_counters is None


def test_the_results_of_a_claim_are_read_and_written():
    result = {
        "request": "a",
        "driver": "b",
        "pool": "c",
        "device": "d",
        "shareID": "e",
        "consumedCapacity": {"m": "1Gi"},
    }
    claim = ResourceClaim.model_validate({"status": {"allocation": {"devices": {"results": [result]}}}})
    assert claim.status.allocation is not None
    (read,) = claim.status.allocation.devices.results or ()
    assert read.share_id == "e"
    assert read.to_json() == result


def test_an_alternative_is_written_with_its_name_first_as_the_api_server_does():
    request = {"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "gpu", "count": 2}]}
    written = DeviceRequest.model_validate(request).to_json()
    assert written == request
    assert [list(alternative) for alternative in written["firstAvailable"]] == [["name", "deviceClassName", "count"]]
