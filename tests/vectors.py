"""The upstream test tables: the folder DRA_SDK_VECTORS, or `../shared/vectors` beside the project.

They are not part of the project. Their tests stand in files `test_*vectors.py`, which are not collected without them
(`tests/conftest.py`).
"""

from __future__ import annotations

import json
import os
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(os.environ.get("DRA_SDK_VECTORS") or Path(__file__).parents[2] / "shared" / "vectors")
PATTERN: Final = "test_*vectors.py"


def are_missing() -> bool:
    """Whether the tables are absent."""
    return not ROOT.is_dir()


def needed_by(path: Path) -> bool:
    """Whether a test file needs the tables."""
    return fnmatch(path.name, PATTERN)


def files(table: str) -> dict[str, Any]:
    """The content of each file of one table, such as `allocator-cases`, by the file's name without `.json`."""
    found = {
        path.stem: json.loads(path.read_text())
        for path in sorted((ROOT / table).glob("*.json"))
        if path.name != "INDEX.json"
    }
    assert found, f"no cases in {ROOT / table}"
    return found


def parameters(table: str) -> list[Any]:
    """The files of one table as pytest parameters."""
    return [pytest.param(content, id=name) for name, content in files(table).items()]


def cases(table: str) -> list[Any]:
    """The cases of one table, such as `dra-lib-cases/resourceclaim.TestName`, as pytest parameters."""
    return [pytest.param(content["case"], id=name) for name, content in files(table).items()]
