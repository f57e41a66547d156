from __future__ import annotations

import re
from pathlib import Path

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.tools.conformance.checks import BY_LEVEL, CHECKS, LEVELS, select

DOCUMENT = Path(__file__).parents[3] / "docs/conformance.md"


def test_each_check_has_a_contract_and_a_source() -> None:
    for check in CHECKS:
        assert re.fullmatch(r"[A-Z]+-\d{3}", check.id)
        assert check.contract.endswith("."), check.id
        assert len(check.contract) > 20, check.id
        assert check.source, check.id


def test_ids_are_unique_and_have_no_gaps() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    for level in LEVELS:
        assert [int(check.id[-3:]) for check in level.checks] == list(range(1, len(level.checks) + 1))
        assert len({check.id.partition("-")[0] for check in level.checks}) == 1


def test_a_selection_by_level_and_id_keeps_the_order() -> None:
    assert select() == list(CHECKS)
    chosen = select(["PREP-002", "registration"])
    assert [check.id for check in chosen] == [*(check.id for check in BY_LEVEL["registration"].checks), "PREP-002"]


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SettingsError, match="there is no level or check 'PREP-999'; the levels are registration, wire"):
        select(["PREP-999"])


def test_the_documentation_lists_every_check() -> None:
    rows = [f"| {check.id} | {check.severity} | {check.contract} | {check.source} |" for check in CHECKS]
    assert "\n".join(["| check | | contract | source |", "|---|---|---|---|", *rows]) in DOCUMENT.read_text()
