"""Calls that come again, at once, or after being cut off: the kubelet repeats itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from dra_sdk.tools.conformance.check import Level, NotApplicable, expect
from dra_sdk.tools.conformance.plugin import Entry
from dra_sdk.tools.conformance.run import Run, accepted

LEVEL = Level("idempotency", "Calls that are repeated")
HELPER = "k8s.io/dynamic-resource-allocation kubeletplugin, DRAPlugin"
KEP = "KEP-4381, NodePrepareResource"
E2E = "Kubernetes test/e2e_node/dra_test.go"
AT_ONCE = 4
DEADLINES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
"""Seconds, from far below what a driver needs: one of them cuts the call off in the middle, on a busy machine too."""


@LEVEL.must("IDEM-001", f"{KEP}; {HELPER}.PrepareResourceClaims")
def same_answer_twice(run: Run) -> None:
    """A claim that is prepared already is answered with the same devices and CDI devices, which stay valid."""
    claim = run.claims.one()
    first = run.prepared_one(claim)
    second = run.prepared_one(claim)
    expect(alike(first, second), "the second answer differs from the first")
    missing = run.cdi.unresolved(second.cdi_ids)
    expect(not missing, f"after the second prepare no spec defines {', '.join(missing)}")


@LEVEL.must("IDEM-002", f"{KEP}: the plugin shall ensure that there are CDI files; /var/run/cdi is gone after a reboot")
def restores_lost_cdi_specs(run: Run) -> None:
    """CDI specs of a prepared claim that were lost are there again after the next prepare."""
    before = run.specs()
    claim = run.claims.one()
    cdi_ids = run.with_cdi(run.prepared_one(claim))
    written = run.new_specs(before)
    if not written:
        raise NotApplicable("preparing writes no spec of its own")
    for path in written:
        path.unlink()
    again = run.prepared_one(claim)
    missing = run.cdi.unresolved([*cdi_ids, *again.cdi_ids])
    expect(not missing, f"no spec defines {', '.join(missing)} after the specs were lost and the claim prepared again")


@LEVEL.must("IDEM-003", f"{HELPER}.UnprepareResourceClaims")
def unprepared_twice(run: Run) -> None:
    """A claim that is unprepared already is no error."""
    claim = run.claims.one()
    run.prepared(claim)
    run.unprepared(claim)
    run.unprepared(claim)


@LEVEL.must("IDEM-004", f"{KEP}: after a failure the kubelet may unprepare and prepare anew")
def prepared_again(run: Run) -> None:
    """A claim that was unprepared can be prepared again, with CDI devices that are there."""
    claim = run.claims.one()
    run.prepared(claim)
    run.unprepared(claim)
    again = run.prepared_one(claim)
    missing = run.cdi.unresolved(again.cdi_ids)
    expect(not missing, f"no spec defines {', '.join(missing)}")


@LEVEL.must("IDEM-005", f"{E2E}, NodePrepareResources is in progress when Kubelet restarts")
def several_times_at_once(run: Run) -> None:
    """The same claim, asked for several times at once, is prepared once and answered alike."""
    claim = run.claims.one()
    version = run.driver.version
    connections = [run.driver.connect() for _ in range(AT_ONCE)]
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(lambda each: each.prepare([claim.ref], version), connections))
    finally:
        for each in connections:
            each.channel.close()
    entries = [accepted(answer, [claim])[claim.ref.uid] for answer in answers]
    expect(all(alike(entries[0], each) for each in entries), "the answers differ")
    missing = run.cdi.unresolved(entries[0].cdi_ids)
    expect(not missing, f"afterwards no spec defines {', '.join(missing)}")


@LEVEL.must("IDEM-006", f"{E2E}, must keep pod in pending state if NodePrepareResources times out")
def cut_off_and_tried_again(run: Run) -> None:
    """A call that the kubelet gives up can be repeated, and unpreparing leaves nothing of either."""
    before = run.specs()
    claim = run.claims.one()
    for deadline in DEADLINES:
        run.subject.prepare([claim.ref], timeout=deadline)
    entry = run.prepared_one(claim)
    missing = run.cdi.unresolved(entry.cdi_ids)
    expect(not missing, f"no spec defines {', '.join(missing)}")
    for deadline in DEADLINES:
        run.subject.unprepare([claim.ref], timeout=deadline)
    run.unprepared(claim)
    run.nothing_left(before, "the claim was unprepared")


def alike(one: Entry, other: Entry) -> bool:
    """Whether two answers give a pod the same; the order of devices says nothing."""
    return _sorted(one) == _sorted(other)


def _sorted(entry: Entry) -> list[tuple[object, ...]]:
    return sorted(
        (each.pool, each.device, sorted(each.requests), sorted(each.cdi_ids), each.share_id or "")
        for each in entry.devices
    )
