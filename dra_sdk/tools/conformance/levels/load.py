"""Many claims: at once, one after another, and as large as the API allows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from dra_sdk.tools.conformance.check import Level, NotApplicable, expect
from dra_sdk.tools.conformance.claims import TestClaim
from dra_sdk.tools.conformance.plugin import TIMING
from dra_sdk.tools.conformance.run import Run

LEVEL = Level("load", "Load")
KUBELET = "Kubernetes pkg/kubelet/cm/dra/plugin/dra_plugin.go, defaultClientCallTimeout"
OPERATIONS = "Kubernetes pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go"
AT_ONCE = 8
LARGEST = 32
LEAK = 20
CHURN = 40
LOOK = 0.01


@LEVEL.must("LOAD-001", KUBELET)
def prepares_many_pods_at_once(run: Run) -> None:
    """When many pods start at once, each call is answered within the kubelet's 45 seconds."""
    slots = run.claims.every_slot(run.claims_held)
    claims = [run.claims.one(slot) for slot in slots]
    _all_at_once(run, claims)


@LEVEL.must("LOAD-002", "KEP-4381, NodeUnprepareResources: must undo the work")
def leaves_nothing_behind(run: Run) -> None:
    """Claims that come and go leave no CDI spec, and no open file of the driver's process."""
    before = run.specs()
    slot = run.claims.slots()[0]
    process = run.driver.process
    open_before: int | None = None
    for count in range(CHURN):
        claim = run.claims.one(slot)
        run.prepared(claim)
        run.unprepared(claim)
        run.claims.delete(claim)
        if process and not count:
            open_before = process.open_files()
    run.nothing_left(before, f"{CHURN} claims have come and gone")
    open_after = process.open_files() if process else None
    if open_before is not None and open_after is not None:
        expect(open_after < open_before + LEAK, f"open files of the process: {open_before}, then {open_after}")


@LEVEL.must("LOAD-003", "k8s.io/api resource/v1, AllocationResultsMaxSize")
def prepares_the_largest_claim(run: Run) -> None:
    """A claim with as many devices as the API allows (32), or as there are, is prepared whole."""
    slots = run.claims.every_slot(LARGEST)
    if len(slots) == 1:
        raise NotApplicable("only one device can be allocated at once")
    claim = run.claims.make(slots)
    entry = run.prepared_one(claim)
    found = {(each.pool, each.device) for each in entry.devices}
    expect(found <= claim.devices, "devices were answered that were not allocated")
    missing = run.cdi.unresolved(entry.cdi_ids)
    expect(not missing, f"no spec defines {', '.join(missing)}")


@LEVEL.must("LOAD-004", f"{OPERATIONS}: one second for GetInfo")
def answers_who_it_is_under_load(run: Run) -> None:
    """GetInfo is answered within a second also while claims are being prepared."""
    claims = [run.claims.one(slot) for slot in run.claims.every_slot(AT_ONCE)]
    registrar = run.driver.connect_registrar()
    try:
        with ThreadPoolExecutor(1) as pool:
            busy = pool.submit(_rounds, run, claims)
            answers = [registrar.get_info()]
            while not busy.done():
                time.sleep(LOOK)
                answers.append(registrar.get_info())
            busy.result()
    finally:
        registrar.channel.close()
    for answer in answers:
        expect(answer.ok, f"GetInfo under load: {answer.status}")
    slowest = max(answer.seconds for answer in answers)
    expect(slowest <= TIMING.get_info, f"GetInfo took {slowest:.2f} s under load")


def _rounds(run: Run, claims: Sequence[TestClaim]) -> None:
    for _ in range(3):
        _all_at_once(run, claims)


def _all_at_once(run: Run, claims: Sequence[TestClaim]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(run.prepared, claims))
        list(pool.map(run.unprepared, claims))
