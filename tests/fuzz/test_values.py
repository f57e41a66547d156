"""Numbers and lists in text are read exactly or refused with ValueError."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from dra_sdk.hardware.cpuset import MAX_CPU, format_cpuset, parse_cpuset
from dra_sdk.model.quantity import Quantity
from tests.fuzz.strategies import fuzz, odd_text, refused, text

DIGITS = st.text("0123456789", min_size=1, max_size=12)
SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-3", "e+2"]
quantities = st.builds(
    "".join, st.tuples(st.sampled_from(["", "-", "+"]), DIGITS, st.sampled_from(["", "."]), st.sampled_from(SUFFIXES))
)
almost = st.text("0123456789.eEnumkKMGi+- ²٣", max_size=12)


@fuzz(700)
@given(st.one_of(quantities, almost, text, odd_text))
@example("9" * 5000)
@example("1e999")
def test_a_quantity_is_exact_or_refused(written: str) -> None:
    if said := refused(lambda: Quantity(written), ValueError):
        assert repr(written) in said or len(written) > 1000
        return
    quantity = Quantity(written)
    again = Quantity(str(quantity))
    assert again == quantity
    assert str(again) == str(quantity)
    assert abs(int(quantity)) >= abs(quantity.value) > abs(int(quantity)) - 1 or quantity.value == 0


@fuzz(200)
@given(st.fractions(), st.booleans())
def test_a_quantity_of_a_number_is_never_too_small(value: Fraction, binary: bool) -> None:
    quantity = Quantity.of(value, binary=binary)
    assert Quantity(str(quantity)).value == quantity.value
    assert abs(quantity.value) >= abs(value)


@fuzz(700)
@given(st.one_of(st.text("0123456789-, \n²٣:/", max_size=16), text, odd_text))
@example("9" * 5000)
@example("0-65535," * 3)
def test_a_cpu_list_is_read_or_refused(written: str) -> None:
    if refused(lambda: parse_cpuset(written), ValueError):
        return
    cpus = parse_cpuset(written)
    assert parse_cpuset(format_cpuset(cpus)) == cpus
    assert all(0 <= cpu <= MAX_CPU for cpu in cpus)


@fuzz(150)
@given(st.sets(st.integers(0, 200)))
def test_a_cpu_set_survives_writing_and_reading(cpus: set[int]) -> None:
    written = format_cpuset(cpus)
    assert parse_cpuset(written) == cpus
    assert parse_cpuset(f" {written}\n") == cpus
