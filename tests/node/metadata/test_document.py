from __future__ import annotations

import pytest
from pydantic import ValidationError

from dra_sdk import Version
from dra_sdk.node.metadata.document import Attribute, DeviceMetadata


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({"string": ""}, ""),
        ({"int": 0}, 0),
        ({"bool": False}, False),
        ({"version": "1.2.3"}, Version("1.2.3")),
        ({"ints": [1, 2]}, [1, 2]),
        ({"strings": ["a"]}, ["a"]),
        ({"bools": [True]}, [True]),
        ({"versions": ["1.0.0"]}, [Version("1.0.0")]),
        ({"quantity": "1Gi"}, None),
        ({}, None),
    ],
)
def test_an_attribute_has_the_value_its_author_gave_it(fields, value):
    found = Attribute.model_validate(fields).value
    assert found == value
    assert type(found) is type(value)


def test_null_is_an_absent_field_and_unknown_fields_are_ignored():
    document = DeviceMetadata.model_validate(
        {
            "metadata": {"name": "c", "uid": None, "labels": {"a": "b"}},
            "podClaimName": None,
            "requests": [{"name": "r", "devices": None, "new": 1}],
        }
    )
    assert document.metadata.uid == ""
    assert document.requests[0].devices == []
    assert document.request("r") is document.requests[0]
    assert document.request("other") is None


@pytest.mark.parametrize(
    "fields",
    [
        {"requests": "r"},
        {"requests": [{}]},
        {"requests": [{"name": "r", "devices": [{"driver": "d", "pool": "p"}]}]},
        {"metadata": {"generation": "1"}},
        {"podClaimName": 7},
    ],
)
def test_wrong_types_and_missing_names_are_errors(fields):
    with pytest.raises(ValidationError):
        DeviceMetadata.model_validate(fields)
