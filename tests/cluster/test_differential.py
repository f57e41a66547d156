"""Random cases on a real API server and kube-scheduler and in this package; see tests/cluster/differential.

DRA_SDK_DIFFERENTIAL_CASES is their number (1000). DRA_SDK_DIFFERENTIAL_SEED repeats a run.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.cluster.differential.__main__ import KEPT, gates_of, is_newer, profile_of
from tests.cluster.differential.case import load, save
from tests.cluster.differential.generate import draw_case
from tests.cluster.differential.real import RealCluster, real_cluster
from tests.cluster.differential.runner import Runner, Summary, nodes
from tests.cluster.features import MARK, VERSION
from tests.cluster.harness.progress import Progress

LIMIT = 3600.0
"""Seconds. A thousand cases take two minutes on an idle machine, and ten times as long on a busy one."""
CASES = int(os.environ.get("DRA_SDK_DIFFERENTIAL_CASES", "1000"))
SEED = os.environ.get("DRA_SDK_DIFFERENTIAL_SEED", str(time.time_ns()))
#: A gate of each kind. ENOUGH cases that need it show whether this package takes it for off.
NOTICED = {"DRADeviceTaints": "taints", "DRAConsumableCapacity": "shares", "DRAPartitionableDevices": "counters"}
ENOUGH = 15

GATES = gates_of(VERSION)

MATCHED = "this package allocates as kube-scheduler 1.36 and 1.37 do; older ones differ in rare cases"
pytestmark = [pytest.mark.timeout(LIMIT), getattr(pytest.mark, MARK)(since=36, because=MATCHED)]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """The control plane of this file; its nodes are only objects."""
    with real_cluster(tmp_path_factory.mktemp("diff"), VERSION, GATES, Progress(), nodes()) as running:
        yield running


def report(summary: Summary) -> str:
    lines = [f"{result.case.name}: {each}" for result in summary.failed for each in result.disagreements]
    return "\n".join([summary.text(), *lines])


def test_kept_cases_agree(real: RealCluster) -> None:
    """These cases once disagreed, or are too rare to be found at random."""
    kept = [load(path) for path in sorted(KEPT.glob("*.json"))]
    assert kept
    summary = Runner(real, profile_of(VERSION, GATES)).run(kept)
    assert not summary.failed, report(summary)


def test_random_cases_agree(real: RealCluster) -> None:
    """Cases that disagree become files in `kept`."""
    print(f"DRA_SDK_DIFFERENTIAL_SEED={SEED}")
    newer = is_newer(VERSION)
    drawn = [draw_case(SEED, number, newer=newer) for number in range(CASES)]
    summary = Runner(real, profile_of(VERSION, GATES)).run(drawn)
    print(summary.text())
    files = [save(result.case, KEPT).name for result in summary.failed]
    assert not files, f"seed {SEED}, now kept: {files}\n{report(summary)}"
    outcomes = Counter(outcome for each in summary.results for outcome in each.tally.outcomes)
    # Each is about a quarter to a half of all.
    assert min(outcomes[name] for name in ("scheduled", "unschedulable", "error")) > len(summary.results) // 20


@pytest.mark.parametrize(("gate", "feature"), NOTICED.items())
def test_a_difference_is_noticed(real: RealCluster, gate: str, feature: str) -> None:
    cases = (draw_case("noticed", number) for number in range(1000))
    about = [case for case in cases if feature in case.tags and "spoilt" not in case.tags][:ENOUGH]
    runner = Runner(real, profile_of(VERSION, {**GATES, gate: False}))
    assert runner.run(about).failed
