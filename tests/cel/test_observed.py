"""Expressions with what Kubernetes' own package was seen to do with them: result, error, estimate and actual cost.

A case without `cost` absorbs an error with `||` or the like; this package may count less after one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dra_sdk import cel

TABLE = json.loads(Path(__file__).with_name("observed.json").read_text())
VIEW = cel.DeviceView.from_json(TABLE["device"], TABLE["device"]["driver"])
CASES = [(each, cel.Features()) for each in TABLE["cases"]]
CASES += [(each, cel.Features(since_1_37=True)) for each in TABLE["since_1_37"]]


def some(*keys: str) -> list[Any]:
    return [
        pytest.param(case, features, id=f"{case['expression'][:60]}{' (1.37)' if features.since_1_37 else ''}")
        for case, features in CASES
        if all(key in case for key in keys)
    ]


@pytest.mark.parametrize(("case", "features"), some("compileError"))
def test_what_does_not_compile(case: dict[str, Any], features: cel.Features):
    with pytest.raises(cel.CelCompileError) as caught:
        cel.compile(case["expression"], features)
    if case["compileError"] is not True:
        assert [caught.value.line, caught.value.column] == case["compileError"]


@pytest.mark.parametrize(("case", "features"), some("match"))
def test_what_has_an_answer(case: dict[str, Any], features: cel.Features):
    selector = cel.compile(case["expression"], features)
    evaluation = selector.evaluate(VIEW)
    assert evaluation.match == case["match"]
    assert selector.max_cost == case["maxCost"]
    assert evaluation.cost == case.get("cost", evaluation.cost)


@pytest.mark.parametrize(("case", "features"), some("error"))
def test_what_fails(case: dict[str, Any], features: cel.Features):
    selector = cel.compile(case["expression"], features)
    assert selector.max_cost == case["maxCost"]
    with pytest.raises(cel.CelRuntimeError):
        selector.matches(VIEW)


def test_every_case_is_one_of_these():
    assert len(CASES) == len(some("compileError")) + len(some("match")) + len(some("error")) > 900
