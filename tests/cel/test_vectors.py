"""Every case of the upstream table of package cel: the result or the error, the estimated and the actual cost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dra_sdk import cel

JSON = dict[str, Any]

VECTORS = Path(os.environ.get("DRA_SDK_VECTORS", Path(__file__).parents[3] / "shared" / "vectors")) / "cel-cases"
if not VECTORS.is_dir():
    pytest.skip(f"no vectors: {VECTORS} is missing, set DRA_SDK_VECTORS", allow_module_level=True)

TABLE = json.loads((VECTORS / "cel-cases.json").read_text())
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
