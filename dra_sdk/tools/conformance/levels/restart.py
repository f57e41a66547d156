"""A driver that ends and starts: what was prepared stays prepared, what was published stays published."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from dra_sdk.model import JSON
from dra_sdk.tools.conformance.check import CheckFailed, Level, Need, NotApplicable, expect
from dra_sdk.tools.conformance.instance import Instance, Waiting
from dra_sdk.tools.conformance.levels.idempotency import alike
from dra_sdk.tools.conformance.run import Run
from dra_sdk.tools.conformance.subject import NotServingError

LEVEL = Level("restart", "Restarts and crashes")
E2E = "Kubernetes test/e2e_node/dra_test.go"
WATCHER = "Kubernetes pkg/kubelet/pluginmanager/pluginwatcher/README.md"
HELPER = "k8s.io/dynamic-resource-allocation kubeletplugin, DRAPlugin"
KUBELET = "Kubernetes pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go: the kubelet removes the slices of lost drivers"
KILLED_AFTER = (0.003, 0.03, 0.3)
"""Seconds after the call was made: on a busy machine it takes a while until the driver has it."""


@LEVEL.must("RST-001", "Kubernetes API reference, PodSpec.terminationGracePeriodSeconds", Need.RESTART)
def ends_when_asked(run: Run) -> None:
    """On SIGTERM the driver ends within the 30 seconds that a pod has by default."""
    run.start()
    ended = run.subject.stop()
    expect(ended, f"the process still ran {run.patience.stop:g} s after SIGTERM")


@LEVEL.should("RST-002", f"{E2E}, must register after plugin restart", Need.RESTART)
def takes_its_sockets_away(run: Run) -> None:
    """A driver that ends in good order removes both sockets, so that the kubelet knows at once."""
    driver = run.driver
    run.subject.stop()
    left = [str(path) for path in dict.fromkeys([driver.registration, driver.endpoint]) if path.exists()]
    expect(not left, f"left after the end: {', '.join(left)}")


@LEVEL.must("RST-003", KUBELET, Need.RESTART)
def leaves_its_slices(run: Run) -> None:
    """A driver that ends does not delete its ResourceSlices: a restart must not take devices from the scheduler."""
    before = published(run)
    run.subject.stop()
    after = identities(run.api.slices(run.subject.name))
    expect(after == before, "the slices changed as the driver ended", before=before, after=after)


@LEVEL.must("RST-004", f"{E2E}, must register after plugin restart", Need.RESTART)
def comes_back(run: Run) -> None:
    """A driver that ended in good order and starts again is registered and prepares claims."""
    _again(run, run.subject.restart)


@LEVEL.must("RST-005", f"{WATCHER}, Plugin Discovery: old sockets have to be deleted", Need.RESTART)
def comes_back_after_a_crash(run: Run) -> None:
    """A driver that was killed starts again although its old sockets are there, is registered and prepares claims."""
    run.start()
    run.subject.kill()
    _again(run, run.subject.start)


@LEVEL.must("RST-006", f"{HELPER}.UnprepareResourceClaims: not the same process", Need.RESTART)
def unprepares_what_it_prepared_before(run: Run) -> None:
    """A claim that was prepared before a crash is unprepared after it, even if the API server no longer has it."""
    claim = run.claims.one()
    before = run.specs()
    run.prepared(claim)
    run.claims.delete(claim)
    run.subject.kill()
    run.unprepared(claim)
    run.nothing_left(before, "the claim was unprepared")


@LEVEL.must("RST-007", f"{HELPER}.PrepareResourceClaims: idempotent", Need.RESTART)
def answers_as_before(run: Run) -> None:
    """A claim that was prepared before a restart is answered with the same devices after it."""
    claim = run.claims.one()
    first = run.prepared_one(claim)
    run.subject.restart()
    again = run.prepared_one(claim)
    expect(alike(first, again), "the answer after the restart differs")
    missing = run.cdi.unresolved(again.cdi_ids)
    expect(not missing, f"no spec defines {', '.join(missing)}")


@LEVEL.must("RST-008", "Container Device Interface: specs are read whenever a container is created", Need.RESTART)
def keeps_cdi_specs(run: Run) -> None:
    """CDI devices of prepared claims stay while the driver is away: a pod's containers are restarted without it."""
    claim = run.claims.one()
    cdi_ids = run.with_cdi(run.prepared_one(claim))
    run.subject.stop()
    missing = run.cdi.unresolved(cdi_ids)
    expect(not missing, f"no spec defines {', '.join(missing)} once the driver has ended")
    run.start()
    missing = run.cdi.unresolved(cdi_ids)
    expect(not missing, f"no spec defines {', '.join(missing)} once the driver has started again")


@LEVEL.must("RST-009", f"{E2E}, must not be removed if plugin restarts quickly enough", Need.RESTART)
def writes_no_slice_anew(run: Run) -> None:
    """A restart changes no ResourceSlice: the same objects, in the same version."""
    before = published(run)
    run.subject.restart()
    run.start()
    waiting = Waiting(run.patience.quiet)
    while waiting.pause(0.1):
        after = identities(run.api.slices(run.subject.name))
        expect(after == before, "the slices changed with the restart", before=before, after=after)


@LEVEL.must("RST-010", f"{E2E}, NodePrepareResources is in progress when Kubelet restarts", Need.RESTART)
def recovers_from_a_crash_in_the_middle(run: Run) -> None:
    """A driver that was killed while it prepared a claim prepares it after the start; unpreparing leaves nothing."""
    before = run.specs()
    claim = run.claims.one()
    for seconds in KILLED_AFTER:
        driver = run.start()
        with ThreadPoolExecutor(1) as pool:
            under_way = pool.submit(driver.service.prepare, [claim.ref], driver.version)
            time.sleep(seconds)
            run.subject.kill()
            under_way.result()
        run.prepared(claim)
        run.unprepared(claim)
    run.nothing_left(before, "the claim was unprepared")


@LEVEL.should("RST-011", f"{HELPER}.PrepareResourceClaims: the last line of defense", Need.RESTART)
def remembers_who_holds_a_device(run: Run) -> None:
    """A device that was prepared before a crash is refused to another claim after it."""
    (slot,) = run.claims.slots(1, shared=False)
    run.prepared(run.claims.one(slot))
    second = run.claims.one(slot)
    if not run.subject.prepare([second.ref]).refuses(second.ref):
        raise NotApplicable("the driver gives a device to two claims without a crash as well (PREP-012)")
    run.subject.kill()
    run.refused(second, f"device {slot.pool}/{slot.device} was prepared for two claims")


def _again(run: Run, start: Callable[[], Instance]) -> None:
    """Start a driver that ran before, as a check of its own."""
    try:
        driver = start()
    except NotServingError as error:
        raise CheckFailed(str(error)) from error
    expect(driver.notified.ok, f"NotifyRegistrationStatus: {driver.notified.status}")
    run.prepared(run.claims.one())


def published(run: Run) -> list[JSON]:
    """What tells the driver's slices from others, once there are any; NotApplicable without."""
    run.start()
    slices = run.claims.slices()
    if not slices:
        raise NotApplicable("the driver publishes no ResourceSlice")
    return identities(run.settled_slices())


def identities(slices: list[JSON]) -> list[JSON]:
    """Name, UID and version of slices."""
    wanted = ("name", "uid", "resourceVersion")
    return [{key: each["metadata"].get(key) for key in wanted} for each in slices]
