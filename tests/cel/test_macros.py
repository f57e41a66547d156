from __future__ import annotations

from collections.abc import Callable

import pytest

from dra_sdk.cel import CelCompileError, compile  # noqa: A004


@pytest.mark.parametrize(
    "expression",
    [
        "has(@.index) && !has(@.nothing)",
        '!has(device.attributes["unknown.example.com"].index)',
        "[1, 2].all(x, x > 0) && [].all(x, false)",
        "[1, 2].exists(x, x > 1) && ![].exists(x, true)",
        "[1, 2].exists_one(x, x > 1) && ![1, 2].existsOne(i, x, x > 0)",
        "[1, 2].map(x, x * 2) == [2, 4]",
        "[1, 2].map(x, x > 1, x * 2) == [4]",
        "[1, 2].filter(x, x > 1) == [2]",
        '{"a": 1}.all(key, key == "a")',
        "[5, 6].all(index, item, item == index + 5)",
        '{"a": 1}.exists(key, value, key == "a" && value == 1)',
        "[5, 6].transformList(index, item, index + item) == [5, 7]",
        "[5, 6].transformList(index, item, index > 0, item) == [6]",
        '{"a": 1}.transformMap(key, value, value + 1) == {"a": 2}',
        '{"a": 1, "b": 2}.transformMap(key, value, value > 1, value) == {"b": 2}',
        '{"a": "b"}.transformMapEntry(key, value, {value: key}) == {"b": "a"}',
        'cel.bind(own, @, own.index == 3 && own.model != "")',
        "cel.bind(unused, 1 / 0, true)",
        "optional.of(1).optMap(x, x + 1).value() == 2",
        "optional.of(1).optFlatMap(x, optional.of(x + 1)).value() == 2",
        "!optional.none().optMap(x, 1 / 0).hasValue()",
        "[3, 1, 2].sortBy(x, -x) == [3, 2, 1]",
        "[[1], [2]].exists(x, x.exists(y, y == 2))",
        "[1, 2].all(x, [x].all(x, x > 0) && x < 3)",
        "cel.bind(__result__, 1, __result__ == 1)",
        "[1, 2].map(x, [3].map(y, x + y)) == [[4], [5]] && [1, 2].map(x, [1, 2].map(x, x)) == [[1, 2], [1, 2]]",
        "[1, 2].map(x, x).map(x, x + 1) == [2, 3] && [[1], [2]].map(x, x.map(y, y)) == [[1], [2]]",
    ],
)
def test_meaning(holds: Callable[[str], bool], expression: str):
    assert holds(expression)


def test_a_loop_over_everything_may_absorb_an_error(holds: Callable[[str], bool], failure: Callable[[str], str]):
    assert holds("[0, 1].exists(x, 1 / x == 1)")
    assert not holds("[0, 1].all(x, 1 / x == 2)")
    assert failure("[0, 1].all(x, 1 / x == 1)") == "division by zero"
    assert failure("[0, 1].exists_one(x, 1 / x == 1)") == "division by zero"


def test_an_error_in_a_binding_comes_up_where_it_is_used(failure: Callable[[str], str]):
    assert failure("cel.bind(x, 1 / 0, x == 1)") == "division by zero"


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("has(device)", "invalid argument to has() macro"),
        ("[1].all(x.y, true)", "argument must be a simple name"),
        ("cel.bind(a.b, 1, true)", "must be simple identifiers"),
        ("optional.of(1).optMap(1, true).hasValue()", "must be a simple identifier"),
        ("x" + ".optMap(a, a)" * 100, "each level doubles"),
        ("[1].existsOne(x, x == 1)", "undeclared reference to"),
        ("[1].all(__result__, true)", "iteration variable __result__ overwrites accumulator variable"),
        ("[1].map(__result__, 1) == []", "iteration variable __result__ overwrites accumulator variable"),
        ("[1].sortBy(__result__, 1) == []", "iteration variable __result__ overwrites accumulator variable"),
        ("[1].exists(i, __result__, true)", "iteration variable __result__ overwrites accumulator variable"),
        ("[1].all(x, x, true)", "duplicate variable name: x"),
        (".cel.bind(x, 1, x == 1)", "undeclared reference to"),
    ],
)
def test_wrong_use(expression: str, problem: str):
    with pytest.raises(CelCompileError) as caught:
        compile(expression)
    assert problem in str(caught.value)
