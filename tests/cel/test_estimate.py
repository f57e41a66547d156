"""Estimates that the tables of observed cases do not cover; each figure is what Kubernetes 1.36 estimates."""

from __future__ import annotations

import pytest

from dra_sdk.cel import compile  # noqa: A004
from dra_sdk.cel.library.overloads import MAX


@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        ("true", 0),
        ("device.driver == ''", 2),
        ("device.driver == device.driver", 11),
        ("device.attributes['a'].b", 4),
        ("device.attributes['a'].b == device.attributes['a'].b", 15),
        ("device.capacity['a'].b == quantity('1')", 6),
        ("has(device.attributes['a'].b)", 3),
        ("[1, 2, 3] == [1, 2, 3]", 21),
        ("{'a': 1}.a == 1", 32),
        ("[device.driver].exists(x, x == '')", 18),
        ("cel.bind(a, device.driver, a == a)", 21),
    ],
)
def test_figures(expression: str, cost: int):
    assert compile(expression).max_cost == cost


def test_what_has_no_limit_saturates():
    assert compile("lists.range(size(device.attributes)).size() > 0").max_cost == MAX


def test_loops_multiply():
    assert compile("lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))").max_cost == 8016012
