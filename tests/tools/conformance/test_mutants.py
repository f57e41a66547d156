"""Every check can fail: a driver without faults passes all of them, and for each check there is a faulty driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from dra_sdk.testing.waiting import wait
from dra_sdk.tools.conformance.allocatable import pools_complete
from dra_sdk.tools.conformance.check import Status, run_check, run_checks
from dra_sdk.tools.conformance.checks import BY_ID, CHECKS, NRI_LEVELS, select
from dra_sdk.tools.conformance.run import Run
from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from tests.tools.conformance.conftest import TIMEOUTS, OpenRun
from tests.tools.conformance.mutants import faults
from tests.tools.conformance.mutants.table import MUTANTS, Mutant


def test_every_check_has_a_mutant_that_makes_it_fail() -> None:
    assert {check_id for mutant in MUTANTS for check_id in mutant.found} == set(BY_ID)
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.timeout(900)
def test_a_driver_without_faults_passes(open_run: OpenRun) -> None:
    passed = set()
    for variant in (faults(), faults("no-health", "no-sharing"), faults("nri")):
        with open_run(variant) as run:
            results = run_checks(run, select(NRI_LEVELS) if "nri" in variant else CHECKS)
        assert [f"{result.check.id}: {result.reason}" for result in results if result.failed] == []
        assert not [result for result in results if result.status is Status.NOT_RUN]
        passed |= {result.check.id for result in results if result.status is Status.PASSED}
    assert passed == set(BY_ID)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fails(mutant: Mutant, open_run: OpenRun, cluster: EmbeddedCluster) -> None:
    kubelet = KubeletTiming() if mutant.real_deadlines else TIMEOUTS.kubelet
    with (
        api_server(cluster, lenient=mutant.lenient_server),
        open_run(mutant.faults, replace(TIMEOUTS, kubelet=kubelet)) as run,
    ):
        shorten_timeouts(run, mutant)
        results = {check_id: run_check(run, BY_ID[check_id]) for check_id in mutant.found}
    for check_id, reason in mutant.found.items():
        assert results[check_id].status is Status.FAILED, (check_id, results[check_id])
        assert reason in results[check_id].reason


def test_one_quick_start_in_three_is_enough_on_a_busy_machine(open_run: OpenRun) -> None:
    with open_run() as run:
        slow = run.instance
        slow.get_info_seconds = 2 * TIMEOUTS.kubelet.get_info
        assert run_check(run, BY_ID["REG-002"]).status is Status.PASSED
        assert run.instance is not slow


def test_a_health_stream_that_the_kubelet_may_have_ended_decides_nothing(open_run: OpenRun) -> None:
    with open_run(faults("stream-ends"), shared_node=True) as run:
        result = run_check(run, BY_ID["HLTH-008"])
    assert result.status is Status.NOT_RUN
    assert "the node's kubelet may have opened one of its own" in result.reason


@contextmanager
def api_server(cluster: EmbeddedCluster, *, lenient: bool) -> Iterator[None]:
    """The server without its validation, as long as the context."""
    admit = list(cluster.store.admit)
    if lenient:
        cluster.store.admit.clear()
    try:
        yield
    finally:
        cluster.store.admit[:] = admit


def shorten_timeouts(run: Run, mutant: Mutant) -> None:
    """Set the timeouts of the mutant, after a driver that publishes slices has published them."""
    if not mutant.timeouts:
        return
    if not {"hidden-socket", "no-slices"} & mutant.faults:
        name, incomplete = run.instance.info.name, "missing-slice" in mutant.faults
        wait(lambda: incomplete or pools_complete(run.api.slices(name)))
        wait(lambda: run.api.slices(name))
    run.driver.timeouts = replace(run.driver.timeouts, **mutant.timeouts)
