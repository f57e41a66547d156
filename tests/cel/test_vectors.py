"""Every case of the upstream table of package cel: the result or the error, the estimated and the actual cost."""

from __future__ import annotations

from typing import Any

import pytest

from dra_sdk import cel
from tests.vectors import files

JSON = dict[str, Any]

TABLE = files("cel-cases")["cel-cases"]
RUNS = [
    pytest.param(case, observed, id=f"{case['name']}-{'lists' if observed['listTypeAttributes'] else 'scalars'}")
    for case in TABLE["cases"]
    for observed in case["observed"]
]


def features(case: JSON, observed: JSON) -> cel.Features:
    # An expression that is stored already is compiled with what any feature gate may have declared.
    consumable = case["enableConsumableCapacity"] or case["envType"] == "StoredExpressions"
    return cel.Features(consumable, observed["listTypeAttributes"])


def view(case: JSON) -> cel.DeviceView:
    return cel.DeviceView.from_json(case, case["driver"])


def test_the_whole_table_is_there():
    assert len(TABLE["cases"]) == 69
    assert TABLE["limits"] == {"expressionMaxCost": cel.MAX_COST, "expressionMaxLength": cel.MAX_LENGTH}


@pytest.mark.parametrize(("case", "observed"), RUNS)
def test_case(case: JSON, observed: JSON):
    wanted = features(case, observed)
    if "compileError" in observed:
        with pytest.raises(cel.CelCompileError) as compiling:
            cel.compile(case["expression"], wanted)
        assert case["expectCompileErrorContains"] in str(compiling.value)
        return
    selector = cel.compile(case["expression"], wanted)
    assert selector.max_cost == observed["maxCost"]
    if "matchError" in observed:
        with pytest.raises(cel.CelRuntimeError) as running:
            selector.matches(view(case))
        assert case["expectMatchErrorContains"] in str(running.value)
    else:
        assert selector.evaluate(view(case)) == (observed["match"], observed["actualCost"])
