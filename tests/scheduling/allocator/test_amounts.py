from __future__ import annotations

import pytest

from dra_sdk.scheduling.allocator.amounts import UNIT, amount, whole_binary


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


def test_rounded_amounts_have_binary_suffixes() -> None:
    assert whole_binary(4096).text == "4Ki"
