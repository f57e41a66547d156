"""Many claims: at the same time, one after another, and as large as the API allows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final

from dra_sdk.tools.conformance.check import Level
from dra_sdk.tools.conformance.claims import TestClaim
from dra_sdk.tools.conformance.outcomes import NotApplicableError, expect, expect_ok
from dra_sdk.tools.conformance.run import Run

LOAD: Final = Level("load", "Load")

_PLUGIN: Final = "Kubernetes pkg/kubelet/cm/dra/plugin/dra_plugin.go"
_OPERATIONS: Final = "Kubernetes pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go"
CONCURRENT_CALLS: Final = 8
MAX_RESULTS: Final = 32
"""The most devices of one claim."""
MAX_NEW_FILES: Final = 20
"""Open files that a process may have more after CYCLES claims than after one."""
CYCLES: Final = 40
_INTERVAL: Final = 0.01


@LOAD.must("LOAD-001", f"{_PLUGIN}, defaultClientCallTimeout")
def prepares_many_pods_at_once(run: Run) -> None:
    """When many pods start at once, each call is answered within the kubelet's 45 seconds."""
    claims = [run.claims.create_one(device) for device in run.claims.pick_at_most(run.max_claims)]
    _prepare_concurrently(run, claims)


@LOAD.must("LOAD-002", "KEP-4381, NodeUnprepareResources: must undo the work")
def leaves_nothing_behind(run: Run) -> None:
    """Claims that come and go leave no CDI spec, and no open file in the driver's process."""
    before = run.spec_files()
    device = run.claims.pick_one()
    process = run.instance.process
    open_before: int | None = None
    for cycle in range(CYCLES):
        claim = run.prepared(run.claims.create_one(device))
        run.unprepare(claim)
        run.claims.delete(claim)
        if process and not cycle:
            open_before = process.open_files()
    run.expect_specs_removed(before, f"after {CYCLES} claims were created and deleted")
    open_after = process.open_files() if process else None
    if open_before is not None and open_after is not None:
        reason = f"open files of the process: {open_before} at first, {open_after} after {CYCLES} claims"
        expect(open_after < open_before + MAX_NEW_FILES, reason)


@LOAD.must("LOAD-003", "k8s.io/api resource/v1, AllocationResultsMaxSize")
def prepares_the_largest_claim(run: Run) -> None:
    """A claim with as many devices as the API allows (32), or as there are, is prepared completely."""
    devices = run.claims.pick_at_most(MAX_RESULTS)
    if len(devices) == 1:
        raise NotApplicableError("only one device can be allocated")
    claim = run.claims.create(devices)
    entry = run.prepare_one(claim)
    answered = {(device.pool, device.device) for device in entry.devices}
    expect(answered <= claim.devices, "the answer has devices that were not allocated")
    run.expect_defined(entry.cdi_ids)


@LOAD.must("LOAD-004", f"{_OPERATIONS}: one second for GetInfo")
def answers_get_info_under_load(run: Run) -> None:
    """GetInfo is answered within one second while claims are being prepared."""
    claims = [run.claims.create_one(device) for device in run.claims.pick_at_most(CONCURRENT_CALLS)]
    with closing(run.instance.connect_registrar()) as registrar, ThreadPoolExecutor(1) as pool:
        busy = pool.submit(_prepare_repeatedly, run, claims)
        answers = [registrar.get_info()]
        while not busy.done():
            time.sleep(_INTERVAL)
            answers.append(registrar.get_info())
        busy.result()
    for answer in answers:
        expect_ok(answer, "GetInfo under load")
    slowest = max(answer.seconds for answer in answers)
    expect(slowest <= run.timeouts.kubelet.get_info, f"GetInfo took {slowest:.2f} s under load")


def _prepare_repeatedly(run: Run, claims: Sequence[TestClaim]) -> None:
    for _ in range(3):
        _prepare_concurrently(run, claims)


def _prepare_concurrently(run: Run, claims: Sequence[TestClaim]) -> None:
    with ThreadPoolExecutor(CONCURRENT_CALLS) as pool:
        list(pool.map(run.prepare, claims))
        list(pool.map(run.unprepare, claims))
