from __future__ import annotations

import pytest

from dra_sdk.wire.resource.claims import DeviceClaim
from dra_sdk.wire.resource.device import Device, DeviceTaint
from dra_sdk.wire.resource.slices import ResourceSliceSpec
from dra_sdk.wire.validation.equality import immutable, same


@pytest.mark.parametrize(
    ("model", "left", "right"),
    [
        (Device, {"name": "a"}, {"name": "a", "attributes": {}, "taints": [], "nodeName": None}),
        (Device, {"capacity": {"m": {"value": "1000m"}}}, {"capacity": {"m": {"value": 1}}}),
        (DeviceTaint, {"timeAdded": "2026-01-01T12:00:00Z"}, {"timeAdded": "2026-01-01T13:00:00+01:00"}),
        (DeviceTaint, {"value": ""}, {}),
        (
            DeviceClaim,
            {"config": [{"opaque": {"parameters": {"a": 1, "b": [2]}}}]},
            {"config": [{"opaque": {"parameters": {"b": [2], "a": 1}}}]},
        ),
    ],
)
def test_the_same_in_other_words(model, left, right):
    assert same(model.model_validate(left), model.model_validate(right))


@pytest.mark.parametrize(
    ("model", "left", "right"),
    [
        (Device, {"capacity": {"m": {"value": "1"}}}, {"capacity": {"m": {"value": "2"}}}),
        (Device, {"attributes": {"a": {}}}, {}),
        (Device, {"allNodes": False}, {}),
        (ResourceSliceSpec, {"nodeName": ""}, {}),
        (DeviceTaint, {"timeAdded": "2026-01-01T12:00:00Z"}, {"timeAdded": "2026-01-01T12:00:01Z"}),
        (DeviceClaim, {"requests": [{"name": "a"}, {"name": "b"}]}, {"requests": [{"name": "b"}, {"name": "a"}]}),
    ],
)
def test_not_the_same(model, left, right):
    assert not same(model.model_validate(left), model.model_validate(right))


def test_immutable():
    assert list(immutable("a", "a", "spec.driver")) == []
    assert [str(problem.type) for problem in immutable("a", "b", "spec.driver")] == ["Invalid"]
