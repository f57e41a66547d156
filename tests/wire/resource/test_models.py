"""The models, against every object of the upstream validation tables."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.wire.resource import Device, ResourceClaim, ResourceSlice
from dra_sdk.wire.validation.structure import KINDS

VECTORS = Path(os.environ.get("DRA_SDK_VECTORS", Path(__file__).parents[4] / "shared" / "vectors")) / "validation-cases"


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


@pytest.mark.skipif(not VECTORS.is_dir(), reason=f"no vectors: {VECTORS} is missing, set DRA_SDK_VECTORS")
def test_every_upstream_object_is_read_and_written_unchanged():
    files = sorted(VECTORS.glob("*/*.json"))
    assert files
    for file in files:
        case = json.loads(file.read_text())
        for obj in filter(None, (case["object"], case.get("oldObject"))):
            assert KINDS[obj["kind"]].model_validate(obj).to_json() == without_nulls(obj), file.name


def test_all_kinds_of_attributes_and_capacities():
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


def test_an_empty_list_is_not_an_absent_one():
    spec = ResourceSlice.model_validate({"spec": {"devices": []}}).spec
    assert spec.devices == []
    assert spec.shared_counters is None


def test_an_allocated_claim():
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
