"""Short circuits, errors, optionals, selection, loops, and what they cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dra_sdk import cel


@pytest.mark.parametrize(
    "expression",
    [
        "@.index == 3 && @['index'] == 3",
        "@.healthy && device.attributes['other.example.com'].rack == 'r7'",
        "device.driver == 'gpu.example.com' && !device.allowMultipleAllocations",
        "#.memory.isGreaterThan(quantity('40Gi')) && #['cores'] == quantity('108')",
        "@.driverVersion.isGreaterThan(semver('1.2.0'))",
        "@.links.exists(x, x == 'nv1') && @.links.includes('nv0') && 'nv0' in @.links && @.links[1] == 'nv1'",
        "'index' in @ && !('nothing' in @)",
        "'gpu.example.com' in device.attributes && !('unknown' in device.attributes)",
        "size(device.attributes['unknown']) == 0 && size(device.attributes) == 2",
        "@.nothing || true",
        "true || @.nothing",
        "!(@.nothing && false)",
        "(@.healthy ? @.index : 0) == 3",
        "@.?index.orValue(0) == 3 && @.?nothing.orValue(0) == 0",
        "@[?'index'].hasValue() && !@.?nothing.hasValue()",
        "device.?attributes['unknown'].?x.?y.orValue(true)",
        "@.?nothing.or(@.?index).value() == 3",
        "[?@.?index, ?@.?nothing] == [3] && {?'a': @.?nothing} == {}",
        "{'a': {'b': [1, 2]}}.a.b[1] == 2",
        "{true: 1, false: 2}[true] == 1",
        "[1, 2][dyn(1.0)] == 2",
        "@['in' + 'dex'] == 3",
        "@[@.healthy ? 'index' : 'model'] == 3",
        "1 in [1, 2] && !(1 in []) && 1.0 in dyn([1, 2]) && [1] in [[1]] && b'a' in [b'a']",
        "@.index < 4 && @.index >= 3.0 && @.model < 'B'",
        "type(@.index) == int && type(@.links) == list && type(@) == map",
    ],
)
def test_true_of_the_device(holds: Callable[[str], bool], expression: str):
    assert holds(expression)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("@.nothing", "no such key: nothing"),
        ("@['no' + 'thing']", "no such key: nothing"),
        ("device.attributes['unknown'].x", "no such key: x"),
        ("@.nothing && true", "no such key: nothing"),
        ("@.index && true", "no such overload"),
        ("@.index ? true : false", "no such overload"),
        ("@.index", "the result is int, want bool"),
        ("@.model > 3", "no such overload"),
        ("@.model.sum() == 1", "no such overload"),
        ("@.driverVersion == '1.2.3'", "no such overload: kubernetes.Semver == string"),
        ("@.driverVersion in ['1.2.3']", "a version cannot be looked up"),
        ("@.links[2] == 'a'", "index out of bounds: 2"),
        ("@.links['a'] == 'a'", "unsupported index type 'string' in list"),
        ("{1: 2}[3] == 2", "no such key: 3"),
        ("@.index.exists(x, true)", "got 'types.Int', expected iterable type"),
        ("[?@.index] == [1]", "cannot initialize optional entry"),
        ("{@.links: 1} == {}", "unsupported key type: list"),
        ("optional.none().value()", "optional.none() dereference"),
        ("@.model.orValue(true)", "no such overload"),
        ("quantity('x') == quantity('1')", "'x' is not a quantity"),
        ("1 / (@.index - 3) == 1", "division by zero"),
    ],
)
def test_no_answer_for_the_device(failure: Callable[[str], str], expression: str, problem: str):
    assert problem in failure(expression)


def test_a_version_differs_from_a_text(holds: Callable[[str], bool]):
    assert holds("@.driverVersion != '1.2.3'")
    assert holds("!(@.driverVersion in @.links) && @.driverVersion in [@.driverVersion]")


def test_the_side_that_decides_is_enough(evaluate: Callable[[str], cel.Evaluation]):
    assert evaluate("false && @.index == 3") == (False, 0)
    assert evaluate("true || @.index == 3") == (True, 0)


def test_a_constant_is_made_once_and_paid_for_each_time(evaluate: Callable[[str], cel.Evaluation]):
    assert evaluate("#.memory.isLessThan(quantity('1Ti'))") == (True, 6)
    assert evaluate("#.memory.isLessThan(quantity('1Ti'))") == (True, 6)


def test_memory_is_bounded(failure: Callable[[str], str]):
    doubled = "[0]"
    for name in "abcdefghijklmnopqrstuvwxy":
        doubled = f"cel.bind({name}, {doubled}, {name} + {name})"
    assert "too large" in failure(f"{doubled}.size() == 0")
    assert "too large" in failure("'a'.replace('', lists.range(9000).map(x, 'aaaaaaaaaa').join()).replace('a', "
                                  "lists.range(9000).map(x, 'aaaaaaaaaa').join()) == ''")  # fmt: skip
