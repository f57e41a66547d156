"""Calls that the kubelet repeats: afterwards, at the same time, or after it gave up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Final

from dra_sdk.tools.conformance.check import Level
from dra_sdk.tools.conformance.outcomes import expect
from dra_sdk.tools.conformance.run import Run, accepted

IDEMPOTENCY: Final = Level("idempotency", "Repeated calls")

_HELPER: Final = "k8s.io/dynamic-resource-allocation kubeletplugin, DRAPlugin"
_KEP: Final = "KEP-4381, NodePrepareResource"
_E2E: Final = "Kubernetes test/e2e_node/dra_test.go"
CONCURRENT_CALLS: Final = 4
DEADLINES: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Seconds, beginning far below what a driver needs, so that one of them ends the call halfway on any machine."""


@IDEMPOTENCY.must("IDEM-001", f"{_KEP}; {_HELPER}.PrepareResourceClaims")
def same_answer_twice(run: Run) -> None:
    """Preparing a prepared claim again gives the same devices and CDI devices, which stay valid."""
    claim = run.claims.create_one()
    first = run.prepare_one(claim)
    second = run.prepare_one(claim)
    expect(first.equivalent(second), "the second answer differs from the first")
    run.expect_defined(second.cdi_ids, "after the second prepare")


@IDEMPOTENCY.must(
    "IDEM-002", f"{_KEP}: the plugin must ensure that CDI files exist; /var/run/cdi is gone after a reboot"
)
def restores_lost_cdi_specs(run: Run) -> None:
    """CDI specs of a prepared claim that were lost exist again after the next prepare."""
    before = run.spec_files()
    claim = run.claims.create_one()
    cdi_ids = run.cdi_ids(run.prepare_one(claim))
    for path in run.new_spec_files(before):
        path.unlink()
    again = run.prepare_one(claim)
    run.expect_defined([*cdi_ids, *again.cdi_ids], "after the specs were lost and the claim was prepared again")


@IDEMPOTENCY.must("IDEM-003", f"{_HELPER}.UnprepareResourceClaims")
def unprepares_twice(run: Run) -> None:
    """Unpreparing an unprepared claim again is not an error."""
    claim = run.prepared()
    run.unprepare(claim)
    run.unprepare(claim)


@IDEMPOTENCY.must("IDEM-004", f"{_KEP}: after a failure the kubelet may unprepare and prepare again")
def prepares_an_unprepared_claim_again(run: Run) -> None:
    """A claim that was unprepared can be prepared again, and its CDI devices exist."""
    claim = run.prepared()
    run.unprepare(claim)
    run.expect_defined(run.prepare_one(claim).cdi_ids)


@IDEMPOTENCY.must("IDEM-005", f"{_E2E}, NodePrepareResources is in progress when Kubelet restarts")
def concurrent_calls_for_one_claim(run: Run) -> None:
    """Concurrent calls for the same claim prepare it once and get the same answer."""
    claim = run.claims.create_one()
    version = run.instance.version
    with ExitStack() as stack, ThreadPoolExecutor(CONCURRENT_CALLS) as pool:
        opened = [closing(run.instance.connect_service()) for _ in range(CONCURRENT_CALLS)]
        connections = [stack.enter_context(connection) for connection in opened]
        answers = list(pool.map(lambda connection: connection.prepare([claim.ref], version), connections))
    first, *others = [accepted(answer, [claim])[claim.ref.uid] for answer in answers]
    expect(all(first.equivalent(other) for other in others), "the answers differ")
    run.expect_defined(first.cdi_ids, "afterwards")


@IDEMPOTENCY.must("IDEM-006", f"{_E2E}, must keep pod in pending state if NodePrepareResources times out")
def repeats_abandoned_calls(run: Run) -> None:
    """A call that the kubelet abandoned can be repeated, and after unprepare nothing remains of either call."""
    before = run.spec_files()
    claim = run.claims.create_one()
    for deadline in DEADLINES:
        run.driver.prepare([claim.ref], timeout=deadline)
    run.expect_defined(run.prepare_one(claim).cdi_ids)
    for deadline in DEADLINES:
        run.driver.unprepare([claim.ref], timeout=deadline)
    run.unprepare(claim)
    run.expect_specs_removed(before, "after the claim was unprepared")
