from __future__ import annotations

from dra_sdk.cel.library.overloads import ANY_SIZE, MAX, Range, cost_of_new_list, exactly, scaled


def test_ranges_saturate():
    assert ANY_SIZE.plus(exactly(1)) == Range(1, MAX)
    assert ANY_SIZE.times(exactly(2)) == Range(0, MAX)
    assert ANY_SIZE.scaled(2).high == MAX


def test_scaling_rounds_up():
    assert [scaled(amount, 0.1) for amount in (0, 1, 10, 11)] == [0, 1, 1, 2]


def test_union_covers_both():
    assert exactly(3).union(Range(1, 2)) == Range(1, 3)


def test_a_new_list_costs_its_making():
    assert cost_of_new_list(4, 2.5) == 21
