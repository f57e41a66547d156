from __future__ import annotations

import pytest

from tests.wire.validation.objects import VERSIONS, claim, device_class, found

AT = "spec.devices.config[0].opaque"


def sized(size):
    """A JSON object of this many bytes."""
    return {"x": "y" * (size - len('{"x":""}'))}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"opaque": {"driver": "a.com", "parameters": {}}}, set()),
        ({"opaque": {"driver": "a.com", "parameters": sized(10240)}}, set()),
        ({"opaque": {"driver": "a.com", "parameters": sized(10241)}}, {("parameters", "TooLong")}),
        ({"opaque": {"driver": "a.com"}}, {("parameters", "Required")}),
        ({"opaque": {"driver": "a.com", "parameters": None}}, {("parameters", "Required")}),
        ({"opaque": {"driver": "a.com", "parameters": [1]}}, {("parameters", "Invalid")}),
        ({"opaque": {"driver": "a.com", "parameters": "text"}}, {("parameters", "Invalid")}),
        ({"opaque": {"driver": "a b", "parameters": {}}}, {("driver", "Invalid")}),
        ({"opaque": {"parameters": {}}}, {("driver", "Required")}),
    ],
)
def test_configuration_of_a_claim(config, expected, version):
    assert found(claim(config=[config]), version) == {(f"{AT}.{field}", kind) for field, kind in expected}


def test_a_configuration_of_no_kind():
    assert found(claim(config=[{}])) == {(AT, "Required")}


def test_sizes_are_bytes_of_compact_json():
    parameters = {"x": "é" * 5116}
    assert found(claim(config=[{"opaque": {"driver": "a.com", "parameters": parameters}}])) == set()
    parameters["x"] += "é"
    assert found(claim(config=[{"opaque": {"driver": "a.com", "parameters": parameters}}])) == {
        (f"{AT}.parameters", "TooLong")
    }


def test_what_a_class_holds_already_may_be_of_any_size():
    large = [{"opaque": {"driver": "a.com", "parameters": sized(20000)}}]
    old = device_class(config=large)
    assert found(device_class(config=large, extendedResourceName="a.com/gpu"), old=old) == set()
    assert found(device_class(config=large * 2), old=old) == {
        (f"spec.config[{index}].opaque.parameters", "TooLong") for index in range(2)
    }
