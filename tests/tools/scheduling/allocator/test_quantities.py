from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.allocator.quantities import MAX_INT64, NANOS_PER_UNIT, parse_quantity, rounded_quantity


@pytest.mark.parametrize(
    ("text", "nano", "canonical"),
    [
        ("80Gi", 80 * 2**30 * NANOS_PER_UNIT, "80Gi"),
        ("500m", NANOS_PER_UNIT // 2, "500m"),
        (4, 4 * NANOS_PER_UNIT, "4"),
        ("0.5", NANOS_PER_UNIT // 2, "500m"),
    ],
)
def test_quantities_are_whole_numbers_of_billionths(text: str | int, nano: int, canonical: str) -> None:
    assert parse_quantity(text) == (nano, canonical)


@pytest.mark.parametrize(("text", "whole"), [("1500m", 2), ("-1500m", -2), ("3", 3), ("0", 0)])
def test_whole_numbers_are_rounded_away_from_zero(text: str, whole: int) -> None:
    assert parse_quantity(text).whole == whole


def test_yaml_numbers_are_quantities_too() -> None:
    assert parse_quantity(1.5) == parse_quantity("1500m")


@pytest.mark.parametrize("value", [None, True, "many", {}])
def test_other_values_are_an_error(value: object) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(value)


@pytest.mark.parametrize(("binary", "text"), [(True, "4Ki"), (False, "4096")])
def test_calculated_amounts_with_and_without_a_binary_suffix(binary: bool, text: str) -> None:
    assert rounded_quantity(4096 * NANOS_PER_UNIT, binary=binary) == (4096 * NANOS_PER_UNIT, text)


def test_a_binary_amount_without_a_suffix_is_stored_as_a_decimal_one() -> None:
    assert rounded_quantity(3000 * NANOS_PER_UNIT, binary=True).text == "3k"


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [("1500m", 1500), ("2", 2000), ("1500u", None), (f"{MAX_INT64}m", MAX_INT64), (str(MAX_INT64 // 1000 + 1), None)],
)
def test_amounts_that_are_whole_numbers_of_thousandths(text: str, thousandths: int | None) -> None:
    assert parse_quantity(text).thousandths == thousandths


@pytest.mark.parametrize(("text", "binary"), [("4Gi", True), ("4G", False), ("512", False)])
def test_whether_an_amount_is_written_with_a_binary_suffix(text: str, binary: bool) -> None:
    assert parse_quantity(text).has_binary_suffix is binary
