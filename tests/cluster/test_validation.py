"""Objects that are changed at random, for a real API server and for this package; see tests/cluster/validation.

DRA_SDK_VALIDATION_CASES is their number for each set of gates (1500). DRA_SDK_VALIDATION_SEED repeats a run.
"""

from __future__ import annotations

import os
import time
from itertools import islice
from pathlib import Path

import pytest

from tests.cluster.features import VERSION
from tests.cluster.harness.progress import Progress
from tests.cluster.validation.plane import GATES, comparison, profile_of
from tests.cluster.validation.run import Outcome, cases

CASES = int(os.environ.get("DRA_SDK_VALIDATION_CASES", "1500"))
SEED = os.environ.get("DRA_SDK_VALIDATION_SEED", str(time.time_ns()))
SECONDS = 150.0
"""After this time no further case begins, on a busy machine. A tenth of them must have been compared by then."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("gates", GATES)
def test_both_judge_changed_objects_in_the_same_way(tmp_path: Path, gates: str) -> None:
    """Accepted or not, the refused fields and the type of each problem, and what would be stored."""
    print(f"DRA_SDK_VALIDATION_SEED={SEED}")
    outcome = Outcome()
    with comparison(tmp_path, VERSION, gates, Progress()) as compared:
        deadline = time.monotonic() + SECONDS
        for case in islice(cases(SEED, profile_of(VERSION, gates)), CASES):
            compared.run(case, outcome)
            if time.monotonic() > deadline:
                break
    print(outcome.text())
    assert outcome.counts["cases"] >= CASES / 10
    assert 0.3 < outcome.counts["refused"] / outcome.counts["cases"] < 0.95, "the cases are all accepted or all refused"
    assert not outcome.disagreements, outcome.text()
