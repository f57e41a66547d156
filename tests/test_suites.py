"""Which suites take their turn in CI."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
CI = runpy.run_path(str(ROOT / ".ci/suites.py"))
SUITES, COMMITS = CI["TABLE"]["suites"], 200


def drawn(*paths: str) -> Counter[str]:
    """How often each suite has its turn, if these paths changed."""
    return Counter(name for head in range(COMMITS) for name in CI["choose"](CI["TABLE"], paths, str(head)))


def test_suites_take_turns_and_one_whose_paths_changed_always_comes() -> None:
    paths = [path for suite in SUITES.values() for path in suite["paths"]]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    for counts in (drawn(), drawn(*paths)):
        assert counts.keys() == SUITES.keys()
        assert counts.total() == 2 * COMMITS
        assert min(counts.values()) > COMMITS / 7
    assert drawn("templates/driver/copier.yml")["template"] == COMMITS
