from __future__ import annotations

from typing import Any

import pytest

from dra_sdk import cel
from dra_sdk.cel import types
from dra_sdk.cel.comparison import compare, equal, find, same
from dra_sdk.cel.values import (
    MISSING,
    NONE,
    ComputedQuantity,
    Duration,
    EvaluationError,
    Optional,
    Semver,
    Timestamp,
    UInt,
)
from dra_sdk.model.quantity import Quantity


def ignore(_steps: int) -> None:
    """Count no steps."""


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 1.0),
        (1, UInt(1)),
        ([1, [2]], [1.0, [UInt(2)]]),
        ({"a": 1}, {"a": 1.0}),
        (Quantity("1Gi"), Quantity(2**30)),
        (Optional(1), Optional(1.0)),
        (NONE, NONE),
        (Semver("1.0.0+a"), Semver("1.0.0+b")),
    ],
)
def test_equal(left: Any, right: Any):
    assert equal(ignore, left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, True),
        (True, 1),
        ("a", b"a"),
        (None, 0),
        ([1], [True]),
        ([1], [1, 1]),
        ([], {}),
        ({"a": 1}, {"a": 1, "b": 2}),
        (float("nan"), float("nan")),
        (Optional(1), NONE),
        (types.INT, types.UINT),
    ],
)
def test_unequal(left: Any, right: Any):
    assert not equal(ignore, left, right)


@pytest.mark.parametrize("right", ["1Gi", Semver("1.0.0"), None, True])
def test_a_quantity_cannot_be_compared_with_anything_else(right: Any):
    with pytest.raises(EvaluationError, match="no such overload"):
        equal(ignore, Quantity(1), right)


@pytest.mark.parametrize(("left", "right", "order"), [(1, 1.5, -1), ("b", "a", 1), (b"a", b"a", 0), (False, True, -1)])
def test_compare(left: Any, right: Any, order: int):
    assert compare(left, right) == order


@pytest.mark.parametrize(("left", "right"), [(1, "a"), (1, True), ([1], [2]), (None, None), (float("nan"), 1.0)])
def test_what_has_no_order(left: Any, right: Any):
    with pytest.raises(EvaluationError):
        compare(left, right)


def test_keys_of_maps_keep_their_types_apart():
    assert find(ignore, {True: "yes"}, 1) is MISSING
    assert find(ignore, {1: "one"}, True) is MISSING
    assert find(ignore, {1: "one"}, 1.0) == "one"
    assert find(ignore, {"a": 1}, "b") is MISSING


def test_keys_that_python_takes_for_one_are_looked_up_by_their_type():
    mixed = {True: "yes", 2: "two", "a": 1}
    assert (find(ignore, mixed, True), find(ignore, mixed, 1), find(ignore, mixed, 2)) == ("yes", MISSING, "two")
    assert find(ignore, {1: "one"}, [1]) is MISSING


def test_a_time_differs_from_everything_else_without_an_error():
    assert not equal(ignore, Timestamp(0), Duration(0))
    assert equal(ignore, Timestamp(0, 3600), Timestamp(0))
    assert compare(Timestamp(1), Timestamp(2, 3600)) == -1


def test_a_computed_quantity_is_on_the_right_only_within_a_list_or_map():
    computed = ComputedQuantity.of(1)
    with pytest.raises(EvaluationError, match="no such overload"):
        equal(ignore, Quantity(1), computed)
    assert equal(ignore, computed, Quantity(1))
    assert equal(ignore, [Quantity(1)], [computed])
    assert equal(ignore, {"a": Quantity(1)}, {"a": computed})


def test_same_takes_what_cannot_be_compared_for_different():
    assert not same(ignore, Quantity(1), "1")


def test_steps_are_counted_for_everything_inside():
    counted: list[int] = []
    assert equal(counted.append, [[1, 2], [3]], [[1, 2], [3]])
    assert sum(counted) == 8
    counted.clear()
    assert equal(counted.append, "a", "a")
    assert counted == []


def test_a_list_nested_thousands_of_levels_deep_is_compared():
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert equal(ignore, deep, deep)


#: A list of lists that shares its items: 8**11 items in twelve lists.
SHARED = "[[1]]" + ".map(a, [a, a, a, a, a, a, a, a])" * 11
BOUND = "".join(f"cel.bind(x{level}, [{', '.join([f'x{level - 1}' if level else '1'] * 8)}], " for level in range(11))
LIMIT = 50_000
"""Steps that are enough to see that there is a limit: the default of a million takes half a second."""


@pytest.mark.parametrize(
    "expression",
    [
        f"{SHARED}.all(a, a == a)",
        f"{SHARED}.all(a, !(a != a))",
        f"{SHARED}.all(a, a in [a])",
        f"{SHARED}.all(a, [a].includes(a))",
        f"{SHARED}.all(a, [a].indexOf(a) == 0)",
        f"{SHARED}.all(a, sets.contains([a], [a]))",
        f"{SHARED}.all(a, [a, a].distinct().size() == 1)",
        f"{SHARED}.all(a, {{'k': a}} == {{'k': a}})",
        f"{SHARED}.all(a, optional.of(a) == optional.of(a))",
        f"{SHARED}.all(a, '%s'.format([a]) != '')",
        f"{SHARED}.all(a, [a].lastIndexOf(dyn(1)) == 0)",
        f"{BOUND}x10 == x10{')' * 11}",
        "lists.range(5000).distinct().size() == 5000",
        "sets.contains(lists.range(5000), lists.range(5000))",
        "cel.bind(a, lists.range(15000), lists.range(5000).all(i, (a + a).size() > 0))",
        "cel.bind(m, lists.range(1500).transformMap(i, v, v), lists.range(5000).all(i, m[1499] == 1499))",
        "cel.bind(t, 'a'" + ".replace('a', 'aaaaaaaaaa')" * 5 + ", lists.range(5000).all(i, !matches(t, 'b$')))",
    ],
)
def test_what_kubernetes_does_not_charge_is_stopped_all_the_same(view: cel.DeviceView, expression: str):
    with pytest.raises(cel.CelCostError, match="actual cost limit exceeded"):
        cel.compile(expression).evaluate(view, limit=LIMIT)


def test_the_message_says_that_kubernetes_counts_less(view: cel.DeviceView):
    with pytest.raises(cel.CelCostError, match="more than 1000000 steps, which Kubernetes does not count"):
        cel.compile(f"{SHARED}.all(a, a == a)").matches(view)


def test_the_limit_of_steps_is_the_limit_of_the_cost(view: cel.DeviceView):
    selector = cel.compile("cel.bind(a, [[1, 2, 3], [4, 5, 6]], a == a)")
    assert selector.evaluate(view, limit=11) == (True, 3)
    with pytest.raises(cel.CelCostError, match="more than 10 steps"):
        selector.evaluate(view, limit=10)


def test_nothing_absorbs_the_limit_of_steps(view: cel.DeviceView):
    with pytest.raises(cel.CelCostError):
        cel.compile(f"{SHARED}.all(a, a == a) || true").evaluate(view, limit=LIMIT)


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(70000).map(i, i).size() == 70000",
        "lists.range(40000).filter(i, i > 10).size() == 39989",
        "lists.range(150000).transformMap(i, v, v).size() == 150000",
        "cel.bind(a, lists.range(300000), lists.range(50000).all(i, a.exists(x, true)))",
    ],
)
def test_loops_take_time_in_proportion_to_their_cost(evaluate: Any, expression: str):
    """A loop that copied what it has so far in each round would not end."""
    assert evaluate(expression).match
