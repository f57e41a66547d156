"""Each check can fail: the driver that keeps to the contract passes, and for each check there is one that does not."""

from __future__ import annotations

import pytest

from dra_sdk.tools.conformance.catalog import BY_ID, CHECKS
from dra_sdk.tools.conformance.check import Status
from dra_sdk.tools.conformance.plugin import TIMING
from dra_sdk.tools.conformance.runner import run_check, run_checks
from dra_sdk.tools.simulator import EmbeddedCluster
from tests.tools.conformance.conftest import Deadlines, Opener
from tests.tools.conformance.mutants.faults import faults
from tests.tools.conformance.mutants.table import MUTANTS, Mutant


def test_every_check_has_a_mutant_that_makes_it_fail() -> None:
    assert {ident for mutant in MUTANTS for ident in mutant.found} == set(BY_ID)
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.timeout(900)
def test_a_driver_without_faults_passes(open_run: Opener) -> None:
    passed = set()
    for variant in (faults(), faults("no-health", "no-sharing")):
        with open_run(variant) as run:
            results = run_checks(run, CHECKS)
        assert [f"{each.check.id}: {each.reason}" for each in results if each.failed] == []
        assert not [each for each in results if each.status is Status.NOT_RUN]
        passed |= {each.check.id for each in results if each.status is Status.PASSED}
    assert passed == set(BY_ID)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fails(mutant: Mutant, open_run: Opener, cluster: EmbeddedCluster, deadlines: Deadlines) -> None:
    if mutant.hurried:
        deadlines(TIMING)
    admit = list(cluster.store.admit)
    if mutant.lenient_server:
        cluster.store.admit.clear()
    try:
        with open_run(mutant.faults, **mutant.patience) as run:
            results = {ident: run_check(run, BY_ID[ident]) for ident in mutant.found}
    finally:
        cluster.store.admit[:] = admit
    for ident, reason in mutant.found.items():
        assert results[ident].status is Status.FAILED, (ident, results[ident])
        assert reason in results[ident].reason
