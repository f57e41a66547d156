"""The upstream test tables, where they are at hand: `DRA_SDK_VECTORS`, or `../shared/vectors` beside the project."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(os.environ.get("DRA_SDK_VECTORS") or Path(__file__).parents[3] / "shared" / "vectors")


def require_vectors() -> None:
    """Skips the module that calls it where there are no vectors."""
    if not ROOT.is_dir():
        pytest.skip(f"no upstream vectors at {ROOT}; set DRA_SDK_VECTORS", allow_module_level=True)


def files(table: str) -> list[Any]:
    """The files of one table, such as `allocator-cases`, as pytest parameters."""
    found = sorted(path for path in (ROOT / table).glob("*.json") if path.name != "INDEX.json")
    assert found, f"no cases in {ROOT / table}"
    return [pytest.param(json.loads(path.read_text()), id=path.stem) for path in found]


def cases(table: str) -> list[Any]:
    """The cases of one table of `dra-lib-cases`, such as `resourceclaim.TestName`, as pytest parameters."""
    return [pytest.param(each.values[0]["case"], id=each.id) for each in files(f"dra-lib-cases/{table}")]
