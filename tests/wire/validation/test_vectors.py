"""The upstream validation tables (Kubernetes 1.36), as sets of field and type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.tools.scheduling.cel_validation import cel_compiler
from dra_sdk.wire.validation import ServerProfile, validate
from tests.vectors import ROOT

VECTORS = ROOT / "validation-cases"
CASES = {str(file.relative_to(VECTORS).with_suffix("")): file for file in sorted(VECTORS.glob("*/*.json"))}


def outcome(file: Path) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return the problems of the API server and ours."""
    case: dict[str, Any] = json.loads(file.read_text())
    profile = ServerProfile.of("1.36", case["featureGates"])
    problems = validate(
        case["object"],
        old=case.get("oldObject"),
        profile=profile,
        subresource="status" if case["op"] == "status-update" else "",
        compile_cel=cel_compiler(profile),
    )
    wanted = {(error["field"], error["type"].removeprefix("FieldValue")) for error in case["errorsViaAPI"] or ()}
    return wanted, {(problem.field, str(problem.type)) for problem in problems}


@pytest.mark.parametrize("name", CASES)
def test_same_problems_as_the_api_server(name: str):
    wanted, got = outcome(CASES[name])
    assert got == wanted


def test_the_number_of_cases_is_known():
    equal = [name for name, file in CASES.items() if len(set(map(frozenset, outcome(file)))) == 1]
    print(f"{len(equal)} of {len(CASES)} cases")
    assert len(CASES) == len(equal) == 282
