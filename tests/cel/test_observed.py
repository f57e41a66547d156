"""Expressions with what Kubernetes' own package was seen to do with them: result, error, estimate and actual cost.

A case without `cost` absorbs an error with `||` or the like; this package may count less after one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dra_sdk import cel

TABLE = json.loads(Path(__file__).with_name("observed.json").read_text())
VIEW = cel.DeviceView.from_json(TABLE["device"], TABLE["device"]["driver"])
CASES = [(case, cel.Features()) for case in TABLE["cases"]]
CASES += [(case, cel.Features(since_1_37=True)) for case in TABLE["since_1_37"]]


def some(key: str) -> list[tuple[dict[str, Any], cel.Features]]:
    return [(case, features) for case, features in CASES if key in case]


def wrong(key: str, observe: Callable[[dict[str, Any], cel.Features], object]) -> dict[str, object]:
    """What `observe` finds wrong in cases with this key, by expression."""
    observed = {f"{case['expression']} {features}": observe(case, features) for case, features in some(key)}
    return {expression: found for expression, found in observed.items() if found}


def compile_error(case: dict[str, Any], features: cel.Features) -> object:
    try:
        cel.compile(case["expression"], features)
    except cel.CelCompileError as error:
        return case["compileError"] is not True and [error.line, error.column] != case["compileError"] and str(error)
    return "compiles"


def answer(case: dict[str, Any], features: cel.Features) -> object:
    selector = cel.compile(case["expression"], features)
    evaluation = selector.evaluate(VIEW)
    wanted = (case["match"], case["maxCost"], case.get("cost", evaluation.cost))
    return (evaluation.match, selector.max_cost, evaluation.cost) != wanted and (evaluation, selector.max_cost)


def failure(case: dict[str, Any], features: cel.Features) -> object:
    selector = cel.compile(case["expression"], features)
    try:
        return f"has the answer {selector.matches(VIEW)}"
    except cel.CelRuntimeError:
        return selector.max_cost != case["maxCost"] and selector.max_cost


# One test for each table: a test for each of 900 expressions takes longer than the expressions.
@pytest.mark.parametrize(
    ("key", "observe"),
    [("compileError", compile_error), ("match", answer), ("error", failure)],
    ids=["compile", "answer", "fail"],
)
def test_every_expression_does_what_it_does_in_kubernetes(
    key: str, observe: Callable[[dict[str, Any], cel.Features], object]
):
    assert wrong(key, observe) == {}


def test_every_case_is_one_of_these():
    assert len(CASES) == len(some("compileError")) + len(some("match")) + len(some("error")) > 900
