from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from dra_sdk.model.quantity import Quantity
from dra_sdk.wire.resource.base import (
    Amount,
    AmountItem,
    BoolItem,
    Int64,
    IntItem,
    Object,
    TextItem,
    Time,
    Timestamp,
)


class Sample(Object):
    some_name: str = ""
    count: Int64 = 0
    amount: Amount | None = None
    at: Timestamp | None = None
    nested: Sample | None = None


def test_json_is_in_camel_case_and_fields_are_in_snake_case():
    value = Sample.model_validate({"someName": "a", "nested": {"someName": "b"}})
    assert (value.some_name, value.nested and value.nested.some_name) == ("a", "b")
    assert value.to_json() == {"someName": "a", "nested": {"someName": "b"}}


def test_what_is_read_is_written_unchanged():
    obj = {"someName": "", "count": 3, "amount": "80Gi", "at": "2026-01-01T00:00:00Z", "nested": {}}
    assert Sample.model_validate(obj).to_json() == obj


def test_quantities_and_times_compare_by_meaning():
    value = Sample.model_validate({"amount": 0.5, "at": "2026-01-01T01:00:00+01:00"})
    assert value.amount == Quantity("500m")
    assert isinstance(value.at, Time)
    assert value.at.instant == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("2026-01-01T00:00:00.5+01:00", "2025-12-31T23:00:00Z"),
        ("2026-01-01T00:00:00.999999999Z", "2026-01-01T00:00:00Z"),
        ("0800-01-01T00:00:00Z", "0800-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00+01:00", "0001-01-01T00:00:00+01:00"),
    ],
)
def test_times_are_written_in_utc_and_whole_seconds(given, stored):
    assert Sample.model_validate({"at": given}).to_json() == {"at": stored}


@pytest.mark.parametrize(
    ("text", "amount"),
    [("8Gi ", "8Gi"), (" 8Gi", "8Gi"), ("5.m", "5m"), ("1.", "1"), (".5e3", "500"), ("+1e3", "1e3")]
    + [(text, "0") for text in (".", "+", "-", "+.", "e3", "E", "E-3", "Ki", "m", ".Ki", "-m", "00", "-0")],
)
def test_quantities_are_read_as_leniently_as_by_the_server(text, amount):
    """Checked with Quantity.UnmarshalJSON of k8s.io/apimachinery 0.36.3."""
    assert str(Sample.model_validate({"amount": text}).amount) == amount


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("12E6", "12E6"),
        (" +1e3 ", "+1e3"),
        ("1.500", "1.500"),
        ("007", "007"),
        ("1e4", "10e3"),
        ("8192Mi", "8Gi"),
        (".", "0"),
    ],
)
def test_quantities_are_written_as_by_the_server(text, stored):
    assert Sample.model_validate({"amount": text}).to_json() == {"amount": stored}


@pytest.mark.parametrize(
    "text", ["", " ", "..", "e", "1e", "1 Gi", "8Gi\t", "\n8Gi", "i", "1i", "1k3", "0x1", "1-", "1m+"]
)
def test_quantities_that_the_server_refuses_are_refused(text):
    with pytest.raises(ValidationError, match="must be a quantity such as 4, 500m or 80Gi"):
        Sample.model_validate({"amount": text})


@pytest.mark.parametrize(
    "obj",
    [
        {"someName": 1},
        {"count": "1"},
        {"count": True},
        {"count": 2**63},
        {"amount": "1 Gi"},
        {"amount": True},
        {"amount": []},
        {"at": "2026-01-01"},
        {"at": "2026-13-01T00:00:00Z"},
        {"nested": []},
        {"other": 1},
        {"other": None},
        {"some_name": "a"},
        {"some_name": None},
    ],
)
def test_wrong_types_and_unknown_fields_are_refused(obj):
    with pytest.raises(ValidationError):
        Sample.model_validate(obj)


class Items(Object):
    objects: list[Sample] | None = None
    by_name: dict[str, Sample] | None = None
    texts: list[TextItem] | None = None
    numbers: list[IntItem] | None = None
    flags: list[BoolItem] | None = None
    amounts: dict[str, AmountItem] | None = None


def test_null_is_an_empty_item_of_a_list_or_a_map():
    """As for the API server, which then checks the empty item like any other."""
    nulls = {"objects": [None], "byName": {"a": None}, "texts": [None], "numbers": [None], "flags": [None]}
    value = Items.model_validate({**nulls, "amounts": {"a": None}})
    assert (value.objects, value.by_name) == ([Sample.model_validate({})], {"a": Sample.model_validate({})})
    assert (value.texts, value.numbers, value.flags) == ([""], [0], [False])
    assert value.amounts == {"a": Quantity(0)}


def test_a_field_that_is_null_is_absent():
    value = Sample.model_validate({"someName": None, "count": None, "nested": {"someName": None}})
    assert value == Sample(nested=Sample())
    assert value.to_json() == {"nested": {}}
