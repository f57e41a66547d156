from __future__ import annotations

import re
from pathlib import Path

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.tools.conformance.catalog import BY_LEVEL, CHECKS, LEVELS, select, table

DOCUMENT = Path(__file__).parents[3] / "docs/conformance.md"


def test_each_check_says_what_it_is_about_and_where_that_is_stated() -> None:
    for check in CHECKS:
        assert re.fullmatch(r"[A-Z]+-\d{3}", check.id)
        assert check.contract.endswith("."), check.id
        assert len(check.contract) > 20, check.id
        assert check.source, check.id


def test_ids_are_unique_and_numbered_through() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    for level in LEVELS:
        assert [int(check.id[-3:]) for check in level.checks] == list(range(1, len(level.checks) + 1))
        assert len({check.id.partition("-")[0] for check in level.checks}) == 1


def test_selecting_by_level_and_by_id_keeps_the_order() -> None:
    assert select() == list(CHECKS)
    chosen = select(["PREP-002", "registration"])
    assert [check.id for check in chosen] == [*(check.id for check in BY_LEVEL["registration"].checks), "PREP-002"]


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SettingsError, match="no level or check is called 'PREP-999'; levels are registration, wire"):
        select(["PREP-999"])


def test_the_documentation_lists_every_check() -> None:
    assert table() in DOCUMENT.read_text()
