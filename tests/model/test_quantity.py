"""Quantities are parsed and written exactly as by the API machinery."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk import Quantity

# What resource.ParseQuantity of k8s.io/apimachinery 0.36.3 makes of each: canonical form and Value().
CANONICAL = [
    ("0", "0", 0),
    ("-0", "0", 0),
    ("0Ki", "0", 0),
    ("4", "4", 4),
    ("+1", "1", 1),
    ("00012", "12", 12),
    ("5.", "5", 5),
    (".5", "500m", 1),
    ("1.10", "1100m", 2),
    ("1500m", "1500m", 2),
    ("2000m", "2", 2),
    ("1000", "1k", 1000),
    ("1024", "1024", 1024),
    ("100k", "100k", 100_000),
    ("1000k", "1M", 1_000_000),
    ("1E", "1E", 10**18),
    ("80Gi", "80Gi", 80 * 2**30),
    ("0.5Gi", "512Mi", 2**29),
    ("512Mi", "512Mi", 2**29),
    ("1.5Ki", "1536", 1536),
    ("1000Ki", "1000Ki", 1_024_000),
    ("1024Ki", "1Mi", 2**20),
    ("0.1Ki", "102400m", 103),
    ("9.765625Ki", "10000", 10_000),
    ("0.9765625Ki", "1k", 1000),
    ("1.0001Ki", "1024102400u", 1025),
    ("0.1n", "1n", 1),
    ("1.5n", "2n", 1),
    ("-1.5", "-1500m", -2),
    ("-1025Ki", "-1025Ki", -1_049_600),
    ("7.5Ei", "7680Pi", 7680 * 2**50),
    ("8Ei", "9223372036854775807", 2**63 - 1),
    ("17592186044416Mi", "9223372036854775807", 2**63 - 1),
    ("-16Ei", "-9223372036854775807", 1 - 2**63),
    ("9223372036854775808", "9223372036854775808", 2**63),
    ("10E", "10E", 10**19),
]
WRONG = [
    "", " ", "1 ", " 1", "1_0", ".", "+", "-", "e3", "1e", "1e+", "1x", "1K", "1ki", "1KI", "1Mb", "1Kib", "--1", "1,5",
    "0x10", "1e1000", "inf", "nan", "1\n", "٣", "¹",
]  # fmt: skip


@pytest.mark.parametrize(("text", "canonical", "whole"), CANONICAL)
def test_the_canonical_form_is_that_of_the_api_machinery(text: str, canonical: str, whole: int) -> None:
    assert str(Quantity(text)) == canonical
    assert int(Quantity(text)) == whole


@pytest.mark.parametrize("text", WRONG)
def test_text_that_is_not_a_quantity_is_quoted_in_the_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity") as caught:
        Quantity(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("value", [None, True, 1.5, b"1", ["1"], Fraction(1)])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        Quantity(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1e3", "1e3"), ("12E6", "12e6"), ("1E-3", "1e-3"), ("1.5e3", "1500"), ("1e1", "10"), ("1e4", "10e3"),
        ("1e+9", "1e9"), ("-2.50e9", "-2500e6"), ("1e-10", "1e-9"), ("0e9", "0"), ("1e21", "1e21"), ("1000e3", "1e6"),
    ],
)  # fmt: skip
def test_exponents_are_written_as_multiples_of_three(text: str, canonical: str) -> None:
    assert str(Quantity(text)) == str(Quantity(Quantity(text))) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "0", "4", "1500", "999999", "1500m", "12E6", "1e3", "1E3", "1e+3", "+1e3", "1e-9", "+4", "007", "1.500",
        "1.001k",        "-2.500", "5.", "12.345G", "100000000000000001", "1E", "7n", "9Gi", "1025Ki", "+3Mi", "007Ti",
        "5.Ki", "99999Gi",
    ],
)  # fmt: skip
def test_text_that_an_api_server_stores_as_it_is(text: str) -> None:
    """Checked with MarshalJSON and Marshal of k8s.io/apimachinery 0.36.3, and with 80 000 random texts."""
    assert Quantity(text).stored == Quantity(Quantity(text)).stored == text


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("1000", "1k"), ("1.000", "1"), ("12E7", "120e6"), ("+1e4", "10e3"), ("0.5", "500m"), (".5", "500m"),
        ("00", "0"), ("+0", "0"), ("1.50", "1500m"), ("1e9", "1e9"), ("1000000000000000001", "1000000000000000001"),
        ("+1000000000000000001", "1000000000000000001"), ("+8Gi", "8Gi"), ("0.5Gi", "512Mi"), ("+100001Gi", "100001Gi"),
        ("+3Pi", "3Pi"), ("1e-10", "1e-9"), ("0.0015", "1500u"),
    ],
)  # fmt: skip
def test_other_text_is_stored_in_its_canonical_form(text: str, stored: str) -> None:
    assert Quantity(text).stored == stored


def test_amounts_without_a_text_are_stored_in_their_canonical_form() -> None:
    assert Quantity(1000).stored == "1k"
    assert Quantity.of(2**31, binary=True).stored == "2Gi"


def test_exponents_do_not_change_the_amount() -> None:
    assert Quantity("1e3") == Quantity("1k") == 1000
    assert hash(Quantity("1e3")) == hash(Quantity("1k"))


def test_quantities_compare_by_amount() -> None:
    assert Quantity("1Ki") == Quantity(1024) == 1024
    assert Quantity("1Gi") > Quantity("1G")
    assert Quantity("999m") < 1
    assert sorted([Quantity("1Mi"), Quantity("1"), Quantity("1k")]) == [1, 1000, 2**20]
    assert len({Quantity("1Ki"), Quantity(1024), Quantity("1024000m")}) == 1
    assert Quantity("1Ki") != "1Ki"
    assert (Quantity(1) == True) is False  # noqa: E712 (a bool is no amount)


def test_quantities_can_be_made_from_quantities_and_exact_numbers() -> None:
    assert str(Quantity(Quantity("2Gi"))) == "2Gi"
    assert repr(Quantity("2Gi")) == "Quantity('2Gi')"
    assert str(Quantity.of(2**31, binary=True)) == "2Gi"
    assert str(Quantity.of(Fraction(3, 2))) == "1500m"
    assert str(Quantity.of(Fraction(1, 3))) == "333333334n"
    assert str(Quantity.of(Fraction(-1, 3))) == "-333333334n"


numbers = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**15), max_value=10**15, places=9)
suffixes = st.sampled_from(
    ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-4"]
)


@given(numbers, suffixes)
def test_printing_and_parsing_gives_the_same_amount_and_print(number: object, suffix: str) -> None:
    first = Quantity(f"{number:f}{suffix}")
    again = Quantity(str(first))
    assert again == first
    assert str(again) == str(first)
    assert "." not in str(first)


@given(st.fractions(), st.booleans())
def test_any_number_is_rounded_away_from_zero_by_less_than_a_nano(number: Fraction, binary: bool) -> None:
    made = Quantity.of(number, binary=binary)
    assert abs(made.value) >= abs(number)
    assert abs(made.value - number) < Fraction(1, 10**9)
    assert Quantity(str(made)) == made


@pytest.mark.parametrize("number", [2**63 - 2**10, 2**63, 10 * 2**60, -(2**63)])
def test_large_numbers_are_written_so_that_they_can_be_read(number: int) -> None:
    assert Quantity(str(Quantity.of(number, binary=True))).value == number


@given(st.text(max_size=12))
def test_text_is_a_quantity_or_a_value_error(text: str) -> None:
    try:
        made = Quantity(text)
    except ValueError:
        return
    assert Quantity(str(made)) == made
