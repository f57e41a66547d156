"""Generated cases of preemption on a real API server and kube-scheduler and in this package.

DRA_SDK_PREEMPTION_CASES is their number (200). DRA_SDK_PREEMPTION_SEED repeats a run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.differential.__main__ import gates_of, profile_of
from tests.cluster.differential.api import Refusal
from tests.cluster.differential.preemption import (
    PreemptionCase,
    PreemptionResult,
    PreemptionRun,
    common_objects,
    draw_preemption,
)
from tests.cluster.differential.real import PREEMPTING, RealCluster, real_cluster
from tests.cluster.differential.runner import AT_ONCE
from tests.cluster.features import MARK, VERSION
from tests.cluster.harness.progress import Progress

LIMIT = 3600.0
CASES = int(os.environ.get("DRA_SDK_PREEMPTION_CASES", "200"))
SEED = os.environ.get("DRA_SDK_PREEMPTION_SEED", str(time.time_ns()))
GATES = gates_of(VERSION)
SETTLE = (0.3, 3.0)
"""Seconds before each pod, and in a second run of a case that disagrees."""
SAME = "preemption is that of kube-scheduler 1.36 and 1.37"

pytestmark = [pytest.mark.timeout(LIMIT), getattr(pytest.mark, MARK)(since=36, because=SAME)]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A control plane whose scheduler preempts."""
    folder = tmp_path_factory.mktemp("preemption")
    with real_cluster(folder, VERSION, GATES, Progress(), (), PREEMPTING) as running:
        for each in common_objects():
            made = running.requests.create(each)
            assert not isinstance(made, Refusal), made
        yield running


def attempt(real: RealCluster, case: PreemptionCase) -> PreemptionResult:
    """A case; one that disagrees is run again, more slowly, because the scheduler may not have seen everything."""
    profile = profile_of(VERSION, GATES)
    for settle in SETTLE:
        result = PreemptionRun(real, profile, case).run(settle)
        if not result.disagreements:
            break
    return result


def test_the_same_pods_are_evicted(real: RealCluster) -> None:
    print(f"DRA_SDK_PREEMPTION_SEED={SEED}")
    cases = [draw_preemption(SEED, number) for number in range(CASES)]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="case") as pool:
        try:
            results = list(pool.map(lambda case: attempt(real, case), cases))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    moves = [(plan, move) for each in results for plan, move in zip(each.case.newcomers, each.moves, strict=False)]
    evicting = [move for _, move in moves if move.victims]
    placed = sum(move.node is not None for _, move in moves)
    failed = [each for each in results if each.disagreements]
    print(
        f"{len(results) - len(failed)} of {len(results)} cases agree: {len(moves)} pods, {placed} placed, "
        f"{len(evicting)} after evictions of {sum(len(move.victims) for move in evicting)} pods"
    )
    lines = [f"{each.case.name}: {text}" for each in failed for text in each.disagreements]
    assert not failed, "\n".join([f"seed {SEED}", *lines])
    assert len(evicting) >= len(results) // 10, "too few cases are about preemption"
    assert len(moves) - placed >= len(results) // 10
