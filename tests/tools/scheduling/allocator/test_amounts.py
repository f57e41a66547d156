from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.allocator.amounts import LARGEST, UNIT, amount, written


@pytest.mark.parametrize(
    ("text", "nano", "canonical"),
    [("80Gi", 80 * 2**30 * UNIT, "80Gi"), ("500m", UNIT // 2, "500m"), (4, 4 * UNIT, "4"), ("0.5", UNIT // 2, "500m")],
)
def test_quantities_are_whole_numbers_of_billionths(text: str | int, nano: int, canonical: str) -> None:
    assert amount(text) == (nano, canonical)


@pytest.mark.parametrize(("text", "whole"), [("1500m", 2), ("-1500m", -2), ("3", 3), ("0", 0)])
def test_whole_numbers_are_rounded_away_from_zero(text: str, whole: int) -> None:
    assert amount(text).whole == whole


def test_yaml_numbers_are_quantities_too() -> None:
    assert amount(1.5) == amount("1500m")


@pytest.mark.parametrize("value", [None, True, "many", {}])
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        amount(value)


@pytest.mark.parametrize(("binary", "text"), [(True, "4Ki"), (False, "4096")])
def test_calculated_amounts_are_written_in_either_way(binary: bool, text: str) -> None:
    assert written(4096 * UNIT, binary=binary) == (4096 * UNIT, text)


def test_a_binary_amount_without_a_suffix_is_stored_as_a_decimal_one() -> None:
    assert written(3000 * UNIT, binary=True).text == "3k"


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [("1500m", 1500), ("2", 2000), ("1500u", None), (f"{LARGEST}m", LARGEST), (str(LARGEST // 1000 + 1), None)],
)
def test_some_amounts_are_whole_numbers_of_thousandths(text: str, thousandths: int | None) -> None:
    assert amount(text).thousandths == thousandths


@pytest.mark.parametrize(("text", "binary"), [("4Gi", True), ("4G", False), ("512", False)])
def test_whether_an_amount_is_written_with_a_binary_suffix(text: str, binary: bool) -> None:
    assert amount(text).binary is binary
