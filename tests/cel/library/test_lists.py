from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    "expression",
    [
        "@.ports.sum() == 6 && @.ports.max() == 3 && @.ports.min() == 1 && !@.ports.isSorted()",
        "[1.5, 2.0].sum() == 3.5 && [1u, 2u].sum() == 3u && ['b', 'a'].max() == 'b' && [].sum() == 0",
        "['a', 'b'].isSorted() && [].isSorted()",
        "@.ports.sort() == [1, 2, 3] && @.links.sort() == ['nv0', 'nv1'] && [].sort() == []",
        "@.ports.indexOf(1) == 1 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(5) == -1 && [1].lastIndexOf(5) == -1",
        "@.ports.reverse() == [2, 1, 3]",
        "[1, 2, 1].distinct() == [1, 2] && [3, 1, 2].slice(1, 3) == [1, 2]",
        "[[1], [2, 3]].flatten() == [1, 2, 3] && [[[1]], [[2]]].flatten(2) == [1, 2]",
        "lists.range(3) == [0, 1, 2] && lists.range(-1) == []",
        "[1, 2].first().value() == 1 && [1, 2].last().value() == 2 && ![].first().hasValue()",
        "sets.contains(@.ports, [1, 2]) && !sets.contains([1], [2]) && sets.contains([1], [])",
        "sets.equivalent([1, 2], [2, 1, 1]) && sets.intersects(@.ports, [9, 3]) && !sets.intersects([], [1])",
        "@.links.includes('nv0') && !@.links.includes('x') && @.index.includes(3) && !@.index.includes('3')",
    ],
)
def test_true(holds: Callable[[str], bool], expression: str):
    assert holds(expression)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("[].max() == 1", "max called on empty list"),
        ("[].min() == 1", "min called on empty list"),
        ("[1].slice(0, 2) == [1]", "cannot slice(0, 2)"),
        ("[1].slice(-1, 0) == [1]", "cannot slice(-1, 0)"),
        ("[1].flatten(-1) == [1]", "level must be non-negative"),
        ("@.links.sum() == 1", "no such overload"),
        ("(@.ports + @.links).sum() == 1", "no such overload"),
        ("(@.ports + @.links).sort() == []", "must have the same type"),
        ("@.model.sort() == []", "no such overload"),
        ("lists.range(100000000) == []", "too large"),
        ("lists.range(49).includes(50)", "cannot be applied to lists longer than 48 values"),
        ("{'a': 1, 'b': 2}.transformMapEntry(k, v, {'c': v}) == {}", "key 'c' already exists"),
    ],
)
def test_errors(failure: Callable[[str], str], expression: str, problem: str):
    assert problem in failure(expression)
