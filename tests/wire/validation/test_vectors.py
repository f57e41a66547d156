"""The upstream validation tables (Kubernetes 1.36), as sets of field and type."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.wire.validation import ServerProfile, validate

VECTORS = Path(os.environ.get("DRA_SDK_VECTORS", Path(__file__).parents[4] / "shared" / "vectors")) / "validation-cases"
if not VECTORS.is_dir():
    pytest.skip(f"no vectors: {VECTORS} is missing, set DRA_SDK_VECTORS", allow_module_level=True)

NEEDS_CEL = "the expression must be compiled, or its cost estimated"
LEFT_OUT = {
    "TestValidateClaim/CEL-compile-errors": NEEDS_CEL,
    "TestValidateClaim/CEL-cost": NEEDS_CEL,
    "TestValidateClass/selectors": NEEDS_CEL,
}
CASES = {str(file.relative_to(VECTORS).with_suffix("")): file for file in sorted(VECTORS.glob("*/*.json"))}


def outcome(file: Path) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """What the API server finds, and what we find."""
    case: dict[str, Any] = json.loads(file.read_text())
    problems = validate(
        case["object"],
        old=case.get("oldObject"),
        profile=ServerProfile.of("1.36", case["featureGates"]),
        subresource="status" if case["op"] == "status-update" else "",
    )
    wanted = {(error["field"], error["type"].removeprefix("FieldValue")) for error in case["errorsViaAPI"] or ()}
    return wanted, {(problem.field, str(problem.type)) for problem in problems}


@pytest.mark.parametrize("name", sorted(CASES.keys() - LEFT_OUT.keys()))
def test_same_problems_as_the_api_server(name: str):
    wanted, got = outcome(CASES[name])
    assert got == wanted


@pytest.mark.parametrize("name", LEFT_OUT)
def test_nothing_but_the_expressions_is_left_out(name: str):
    wanted, got = outcome(CASES[name])
    assert got < wanted
    assert all(field.endswith("cel.expression") for field, _ in wanted - got)


def test_score():
    equal = [name for name, file in CASES.items() if len(set(map(frozenset, outcome(file)))) == 1]
    print(f"{len(equal)} of {len(CASES)} cases; left out: {', '.join(LEFT_OUT)} ({NEEDS_CEL})")
    assert len(CASES) == 282
    assert set(equal) == CASES.keys() - LEFT_OUT.keys()
