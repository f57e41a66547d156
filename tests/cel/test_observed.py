"""Expressions with what Kubernetes' own package was seen to do with them: result, error, estimate and actual cost.

A case without `cost` absorbs an error with `||` or the like; less may be counted here after one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dra_sdk import cel

TABLE = json.loads(Path(__file__).with_name("observed.json").read_text())
VIEW = cel.DeviceView.from_json(TABLE["device"], TABLE["device"]["driver"])
CASES = TABLE["cases"]


def some(*keys: str) -> list[Any]:
    return [pytest.param(each, id=each["expression"][:60]) for each in CASES if all(key in each for key in keys)]


@pytest.mark.parametrize("case", some("compileError"))
def test_what_does_not_compile(case: dict[str, Any]):
    with pytest.raises(cel.CelCompileError) as caught:
        cel.compile(case["expression"])
    if case["compileError"] is not True:
        assert [caught.value.line, caught.value.column] == case["compileError"]


@pytest.mark.parametrize("case", some("match"))
def test_what_has_an_answer(case: dict[str, Any]):
    selector = cel.compile(case["expression"])
    outcome = selector.evaluate(VIEW)
    assert outcome.match == case["match"]
    assert selector.max_cost == case["maxCost"]
    assert outcome.cost == case.get("cost", outcome.cost)


@pytest.mark.parametrize("case", some("error"))
def test_what_fails(case: dict[str, Any]):
    selector = cel.compile(case["expression"])
    assert selector.max_cost == case["maxCost"]
    with pytest.raises(cel.CelRuntimeError):
        selector.matches(VIEW)


def test_every_case_is_one_of_these():
    assert len(CASES) == len(some("compileError")) + len(some("match")) + len(some("error")) > 500
