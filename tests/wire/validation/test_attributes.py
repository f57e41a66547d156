from __future__ import annotations

import pytest

from tests.wire.validation.objects import VERSIONS, device, found, resource_slice

AT = "spec.devices[0].attributes[a]"


def problems(attribute, version="1.36"):
    return found(resource_slice(device(attributes={"a": attribute})), version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "attribute", [{"int": -1}, {"bool": False}, {"string": ""}, {"string": "x" * 64}, {"version": "1.2.3-rc.1"}]
)
def test_good_values(attribute, version):
    assert problems(attribute, version) == set()


@pytest.mark.parametrize(
    "attribute", [{"ints": [1, 2]}, {"bools": [True]}, {"strings": ["", "x" * 64]}, {"versions": ["1.2.3"]}]
)
def test_lists_came_with_1_36(attribute):
    (name,) = attribute
    assert problems(attribute, "1.36") == problems(attribute, "1.37") == set()
    assert problems(attribute, "1.35") == {(f"{AT}.{name}", "Unknown"), (AT, "Invalid")}
    assert problems(attribute, "1.34") == {(f"{AT}.{name}", "Unknown"), (AT, "Required")}


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({}, {(AT, "Invalid")}),
        ({"int": 1, "bool": True}, {(AT, "Invalid")}),
        ({"int": 1, "ints": [1]}, {(AT, "Invalid")}),
        ({"string": "é" * 33}, {(f"{AT}.string", "TooLong")}),
        ({"version": "v1"}, {(f"{AT}.version", "Invalid")}),
        ({"version": f"1.0.0-{'a' * 60}"}, {(f"{AT}.version", "TooLong")}),
        ({"strings": ["", "x" * 65]}, {(f"{AT}.strings[1]", "TooLong")}),
        ({"versions": ["1.0.0", "1"]}, {(f"{AT}.versions[1]", "Invalid")}),
    ],
)
def test_broken_values(attribute, expected):
    assert problems(attribute) == problems(attribute, "1.37") == expected


def test_an_empty_list_counts_as_no_value_since_1_37():
    assert problems({"ints": []}, "1.36") == {(f"{AT}.ints", "Invalid")}
    assert problems({"ints": []}, "1.37") == {(f"{AT}.ints", "Invalid"), (AT, "Invalid")}
    for version in ("1.36", "1.37"):
        assert problems({"ints": [], "int": 1}, version) == {(f"{AT}.ints", "Invalid"), (AT, "Invalid")}
