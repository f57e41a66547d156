from __future__ import annotations

import pytest

from dra_sdk import cel
from dra_sdk.cel.conjuncts import conjuncts
from dra_sdk.cel.fields import FieldValue, format_value
from dra_sdk.cel.values import Semver
from dra_sdk.model.quantity import Quantity

OWN = 'device.attributes["gpu.example.com"]'


def read(expression: str, view: cel.DeviceView) -> list[FieldValue]:
    return [field for conjunct in conjuncts(expression) for field in conjunct.explain(view).fields]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ('device.driver == "a"', ['driver is "gpu.example.com"']),
        ("device.allowMultipleAllocations", ["allowMultipleAllocations is false"]),
        (f"{OWN}.index == {OWN}.index", ["index is 3"]),
        ('device.attributes["other.example.com"].rack == "r1"', ['other.example.com/rack is "r7"']),
        ('device.capacity["gpu.example.com"].memory.isLessThan(quantity("1Gi"))', ["memory is 80Gi"]),
        (f'{OWN}.driverVersion.isLessThan(semver("1.0.0"))', ["driverVersion is 1.2.3"]),
        (f"cel.bind(d, {OWN}, d.healthy && d.index == 1)", ["healthy is true", "index is 3"]),
        ("cel.bind(a, device.attributes, cel.bind(d, a['gpu.example.com'], d.index == 1))", ["index is 3"]),
        (f"has({OWN}.index)", ["index is 3"]),
        (f"has({OWN}.serial)", ["serial is missing"]),
        (f"{OWN}.?index.orValue(9) == 9", ["index is 3"]),
        (f"{OWN}.?serial.orValue(9) == 9", ["serial is missing"]),
        (f"{OWN}[?'index'].orValue(9) == 9", ["index is 3"]),
        (f"{OWN}.ports.exists(p, p == {OWN}.index && p == 9)", ["ports is [3, 1, 2]", "index is 3"]),
        (f"{OWN}.?index.optMap(x, x + 1).orValue(0) == 1", ["index is 3"]),
        ('"rack" in device.attributes["other.example.com"]', ['device.attributes["other.example.com"] is {rack}']),
        (f"{OWN}[device.driver] == 1", []),
        ("[1].map(device, device)[0] == 1", []),
        ("1 == 2", []),
    ],
)  # fmt: skip
def test_what_is_read(expression: str, found: list[str], view: cel.DeviceView):
    assert [str(value) for value in read(expression, view)] == found


def test_a_leading_dot_means_the_device_since_1_37(view: cel.DeviceView):
    expression = "[1].all(device, device == 1 && .device.driver == 'a')"
    (conjunct,) = conjuncts(expression, cel.Features(since_1_37=True))
    assert [str(value) for value in conjunct.fields(view)] == ['driver is "gpu.example.com"']


def test_a_value_under_another_name_is_hinted_at(view: cel.DeviceView):
    def hint(expression: str) -> str:
        (found,) = read(expression, view)
        assert found.missing
        return found.hint

    assert hint(f"{OWN}.memory == 1") == 'it has device.capacity["gpu.example.com"].memory'
    assert hint('device.attributes["example.com"].index == 1') == f"it has {OWN}.index"
    assert hint(f"{OWN}.Model == 'a'") == f"it has {OWN}.model"
    assert hint(f"{OWN}.colour == 'a'") == ""


def test_a_device_that_makes_no_sense():
    view = cel.DeviceView("d.example.com", {}, {"memory": "lots"})
    (found,) = read('device.attributes["d.example.com"].x == 1', view)
    assert found.missing
    assert "memory" in found.hint


def test_format_value():
    assert format_value(Quantity("1Gi")) == "1Gi"
    assert format_value(Semver("1.2.3-rc.1+b")) == "1.2.3-rc.1+b"
    assert format_value('a"b') == '"a\\"b"'
    assert format_value([True, None]) == "[true, null]"
    assert len(format_value("x" * 1000)) == 64
