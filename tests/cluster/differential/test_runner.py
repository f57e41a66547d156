"""Cases that disagree run again."""

from __future__ import annotations

import pytest

from dra_sdk.wire.profile import ServerProfile
from tests.cluster.differential.case import Case
from tests.cluster.differential.compare import Disagreement
from tests.cluster.differential.real import RealCluster
from tests.cluster.differential.runner import Result, Runner, Tally
from tests.cluster.harness.cache import DEFAULT_VERSION


class OnSlowMachine(Runner):
    """Agrees if the scheduler has `needed` seconds to see the objects; does nothing else."""

    def __init__(self, needed: float) -> None:
        super().__init__(RealCluster.__new__(RealCluster), ServerProfile.of(DEFAULT_VERSION))
        self.needed, self.pauses = needed, list[float]()

    def _attempt(self, case: Case, settle: float) -> Result:
        self.pauses.append(settle)
        late = [Disagreement(case.name, "nodes that fit", "all", "none")] if settle < self.needed else []
        return Result(case, late, Tally())


@pytest.mark.parametrize(("needed", "pauses"), [(0.0, [0.1]), (0.5, [0.1, 0.5]), (3.0, [0.1, 0.5, 5.0])])
def test_a_scheduler_that_is_behind_gets_more_and_more_time(needed: float, pauses: list[float]) -> None:
    runner = OnSlowMachine(needed)
    summary = runner.run([Case("late", (), ())])
    assert not summary.failed
    assert runner.pauses == pauses
    assert bool(summary.results[0].first) is (needed > 0)


def test_a_real_difference_stays_and_many_of_them_do_not_take_all_day() -> None:
    runner = OnSlowMachine(float("inf"))
    summary = runner.run([Case(f"case-{number}", (), ()) for number in range(30)])
    assert len(summary.failed) == 30
    assert runner.pauses.count(5.0) == 10
