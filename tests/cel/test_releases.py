"""What 1.37 does otherwise with expressions; observed with k8s.io/dynamic-resource-allocation 0.36.3 and 0.37.1."""

from __future__ import annotations

import pytest

from dra_sdk import cel

DRIVER = "d.example.com"
A = f'device.attributes["{DRIVER}"]'
ATTRIBUTES = {"s": {"string": "some string"}, "i": {"int": 3}, "ls": {"strings": ["a", "b"]}, "li": {"ints": [3, 1, 2]}}
VIEW = cel.DeviceView.from_json({"name": "x", "attributes": ATTRIBUTES}, DRIVER)
OLD, NEW = cel.Features(), cel.Features(since_1_37=True)


def judged(expression: str, features: cel.Features) -> tuple[int, bool, int]:
    """The estimate, the answer and what it cost."""
    selector = cel.compile(expression, features)
    outcome = selector.evaluate(VIEW)
    return selector.max_cost, outcome.match, outcome.cost


@pytest.mark.parametrize(
    ("expression", "old", "new"),
    [
        ('device.driver.startsWith("d")', (3, True, 4), (3, True, 3)),
        (f'{A}.ls.includes("a")', (52, True, 5), (68, True, 4)),
        (f"{A}.includes([])", (61, False, 4), (269, False, 8)),
        (f"matches({A}.s, string(1))", (6, False, 5), (2**64 - 1, False, 6)),
    ],
)
def test_prices(expression: str, old: tuple[int, bool, int], new: tuple[int, bool, int]) -> None:
    assert judged(expression, OLD) == old
    assert judged(expression, NEW) == new


def test_includes_looks_at_48_values_up_to_1_36() -> None:
    expression = "lists.range(49).includes(99)"
    with pytest.raises(cel.CelRuntimeError, match="longer than 48 values"):
        cel.compile(expression, OLD).evaluate(VIEW)
    assert not cel.compile(expression, NEW).matches(VIEW)
    assert cel.compile("lists.range(49).includes(48)", NEW).matches(VIEW)
    assert cel.compile(f'{A}.s.includes("some string")', NEW).matches(VIEW)


def test_a_range_of_less_than_nothing_is_an_error_since_1_37() -> None:
    assert cel.compile("lists.range(-1).size() == 0", OLD).matches(VIEW)
    with pytest.raises(cel.CelRuntimeError, match="size must be non-negative, got -1"):
        cel.compile("lists.range(-1).size() == 0", NEW).evaluate(VIEW)


def test_a_value_whose_type_only_the_evaluation_knows_is_looked_at_again() -> None:
    """`max` gives what the list holds, here strings, where a number is wanted."""
    selector = cel.compile(f"'abc'.substring({A}.ls.max(), 1) == ''")
    with pytest.raises(cel.CelRuntimeError, match="no such overload"):
        selector.evaluate(VIEW)


def test_lists_of_attributes_can_be_flattened() -> None:
    assert cel.compile(f"sets.intersects([1], {A}.li.flatten())").matches(VIEW)
    with pytest.raises(cel.CelRuntimeError, match="no such overload"):
        cel.compile(f"{A}.s.flatten() == []").evaluate(VIEW)
