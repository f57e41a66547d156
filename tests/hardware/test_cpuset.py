from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_sdk.hardware.cpuset import MAX_CPU, format_cpuset, parse_cpuset


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", set()),
        ("\n", set()),
        ("0", {0}),
        ("0-3,8\n", {0, 1, 2, 3, 8}),
        ("8,0-1,1-2", {0, 1, 2, 8}),
        ("7-7", {7}),
        (str(MAX_CPU), {MAX_CPU}),
    ],
)
def test_cpu_lists_are_parsed(text, cpus):
    assert parse_cpuset(text) == cpus


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a-b", "'a-b' is neither"),
        ("0-", "'0-' is neither"),
        ("-1", "'-1' is neither"),
        ("0,,1", "'' is neither"),
        ("0,", "'' is neither"),
        ("0 1", "'0 1' is neither"),
        ("0, 1", "' 1' is neither"),
        ("0-31:2/4", "'0-31:2/4' is neither"),
        ("+1", "'+1' is neither"),
        ("1_0", "'1_0' is neither"),
        ("٣", "is neither"),
        ("3-1", "'3-1' runs backwards"),
        ("0-65536", "above the largest CPU number, 65535"),
        ("99999999999999", "above the largest CPU number, 65535"),
    ],
)
def test_the_wrong_element_of_a_cpu_list_is_quoted(text, part):
    with pytest.raises(ValueError, match="CPU list ") as error:
        parse_cpuset(text)
    assert part in str(error.value)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("cpus", "text"),
    [((), ""), ([5], "5"), ([1, 0], "0-1"), ({8, 0, 2, 3, 1, 10}, "0-3,8,10"), ([4, 4, 5], "4-5")],
)
def test_cpu_sets_are_written_as_shortest_lists(cpus, text):
    assert format_cpuset(cpus) == text


@settings(deadline=None, database=None)
@given(st.frozensets(st.integers(0, MAX_CPU)))
def test_a_written_list_is_parsed_to_the_same_set(cpus):
    assert parse_cpuset(format_cpuset(cpus)) == cpus


@settings(deadline=None, database=None)
@given(st.frozensets(st.integers(0, 300)))
def test_neighbouring_cpus_are_written_as_ranges(cpus):
    assert len(format_cpuset(cpus).split(",")) == max(1, sum(cpu - 1 not in cpus for cpu in cpus))
