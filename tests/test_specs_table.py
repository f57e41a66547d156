"""The table of upstream specs in tests/cluster/README.md is complete, and the tests it names exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPECS = 43
ROW = re.compile(r"\| (\d+) \| (.+) \| ([DK]) \| (.+) \|")
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def rows() -> dict[int, tuple[str, str]]:
    """The mark and the counterpart of each spec, by number."""
    text = (ROOT / "tests/cluster/README.md").read_text()
    return {int(row[1]): (row[3], row[4]) for row in map(ROW.fullmatch, text.splitlines()) if row}


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


def test_every_spec_has_its_row() -> None:
    assert list(rows()) == list(range(1, SPECS + 1))


@pytest.mark.parametrize(("number", "mark", "counterpart"), [(key, *value) for key, value in rows().items()])
def test_a_spec_has_a_counterpart_that_exists_or_a_reason_for_none(number: int, mark: str, counterpart: str) -> None:
    named = TEST.findall(counterpart)
    assert named or (mark == "K" and counterpart.startswith("none")), f"spec {number} needs a test"
    for path, name in named:
        assert name.startswith("test_")
        assert name in names_in(path), f"spec {number} names {path}::{name}, which does not exist"
