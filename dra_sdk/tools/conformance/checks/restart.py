"""Stopping, starting and updating the driver: prepared claims stay prepared, published slices stay published."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Final

from dra_sdk.tools.conformance.check import Level, Need
from dra_sdk.tools.conformance.claims import TestClaim
from dra_sdk.tools.conformance.driver_under_test import DriverNotRunningError, Instance
from dra_sdk.tools.conformance.outcomes import CheckFailedError, NotApplicableError, expect, expect_ok
from dra_sdk.tools.conformance.run import Run, accepted, slice_versions
from dra_sdk.tools.simulator.kubelet.calls import ClaimResponse

RESTART: Final = Level("restart", "Restarts and crashes")
ROLLING: Final = Level("rolling", "Rolling updates")

_E2E_NODE: Final = "Kubernetes test/e2e_node/dra_test.go"
_E2E: Final = "Kubernetes test/e2e/dra, seamless upgrade"
_WATCHER: Final = "Kubernetes pkg/kubelet/pluginmanager/pluginwatcher/README.md"
_MANAGER: Final = "Kubernetes pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go"
_HELPER: Final = "k8s.io/dynamic-resource-allocation kubeletplugin, DRAPlugin"
_ROLLING: Final = "k8s.io/dynamic-resource-allocation kubeletplugin, RollingUpdate"
_GUARD: Final = "PrepareResourceClaims: the last line of defense"
KILL_DELAYS: Final = (0.003, 0.03, 0.3, 3.0)
"""Seconds from a call to SIGKILL, if the call is not answered before: a busy machine takes a while to deliver it."""


@RESTART.must("RST-001", "Kubernetes API reference, PodSpec.terminationGracePeriodSeconds", Need.RESTART)
def ends_on_sigterm(run: Run) -> None:
    """On SIGTERM the driver ends within 30 seconds, the default grace period of a pod."""
    run.driver.start()
    ended = run.driver.stop()
    expect(ended, f"the process still ran {run.timeouts.stop:g} s after SIGTERM")


@RESTART.should("RST-002", f"{_E2E_NODE}, must register after plugin restart", Need.RESTART)
def removes_its_sockets(run: Run) -> None:
    """A driver that ends on SIGTERM removes both sockets, so that the kubelet notices at once."""
    sockets = dict.fromkeys([run.instance.registration_socket, run.instance.service_socket])
    run.driver.stop()
    left = [str(path) for path in sockets if path.exists()]
    expect(not left, f"sockets that remain: {', '.join(left)}")


@RESTART.must("RST-003", f"{_MANAGER}: the kubelet removes the slices of lost drivers", Need.RESTART)
def leaves_its_slices(run: Run) -> None:
    """A driver that ends does not delete its ResourceSlices: a restart must not take devices from the scheduler."""
    before = slice_versions(run.published_slices())
    run.driver.stop()
    after = slice_versions(run.api.slices(run.driver.name))
    expect(after == before, "the slices changed when the driver ended", before=before, after=after)


@RESTART.must("RST-004", f"{_E2E_NODE}, must register after plugin restart", Need.RESTART)
def works_after_a_restart(run: Run) -> None:
    """A driver that ended on SIGTERM and starts again is registered and prepares claims."""
    _expect_working(run, run.driver.restart)


@RESTART.must("RST-005", f"{_WATCHER}, Plugin Discovery: old sockets have to be deleted", Need.RESTART)
def works_after_a_crash(run: Run) -> None:
    """A driver that was killed starts although its old sockets exist, is registered and prepares claims."""
    run.driver.start()
    run.driver.kill()
    _expect_working(run, run.driver.start)


@RESTART.must("RST-006", f"{_HELPER}.UnprepareResourceClaims: not the same process", Need.RESTART)
def unprepares_after_a_crash(run: Run) -> None:
    """A claim that was prepared before a crash is unprepared after it, even if the API server no longer has it."""
    claim = run.claims.create_one()
    before = run.spec_files()
    run.prepare(claim)
    run.claims.delete(claim)
    run.driver.kill()
    run.unprepare(claim)
    run.expect_specs_removed(before, "after the claim was unprepared")


@RESTART.must("RST-007", f"{_HELPER}.PrepareResourceClaims: idempotent", Need.RESTART)
def same_answer_after_a_restart(run: Run) -> None:
    """A claim that was prepared before a restart gets the same devices after it."""
    claim = run.claims.create_one()
    first = run.prepare_one(claim)
    run.driver.restart()
    second = run.prepare_one(claim)
    expect(first.equivalent(second), "the answer after the restart differs")
    run.expect_defined(second.cdi_ids)


@RESTART.must("RST-008", "Container Device Interface: specs are read whenever a container is created", Need.RESTART)
def keeps_cdi_specs(run: Run) -> None:
    """CDI devices of prepared claims stay while the driver does not run: a pod's containers may restart then."""
    cdi_ids = run.cdi_ids(run.prepare_one(run.claims.create_one()))
    run.driver.stop()
    run.expect_defined(cdi_ids, "after the driver has ended")
    run.driver.start()
    run.expect_defined(cdi_ids, "after the driver has started again")


@RESTART.must("RST-009", f"{_E2E_NODE}, must not be removed if plugin restarts quickly enough", Need.RESTART)
def restart_writes_no_slice(run: Run) -> None:
    """A restart changes no ResourceSlice: the objects and their versions stay the same."""
    before = slice_versions(run.published_slices())
    run.driver.restart()
    run.expect_unchanged_slices(run.driver.name, before, "the slices changed with the restart", run.timeouts.quiet)


@RESTART.must("RST-010", f"{_E2E_NODE}, NodePrepareResources is in progress when Kubelet restarts", Need.RESTART)
def recovers_from_a_crash_during_prepare(run: Run) -> None:
    """A driver that was killed while it prepared a claim prepares it after the start; unprepare leaves nothing."""
    before = run.spec_files()
    claim = run.claims.create_one()
    for seconds in KILL_DELAYS:
        instance = run.driver.start()
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(instance.prepare, [claim.ref])
            wait([call], timeout=seconds)
            run.driver.kill()
            call.result()
        run.prepare(claim)
        run.unprepare(claim)
    run.expect_specs_removed(before, "after the claim was unprepared")


@RESTART.should("RST-011", f"{_HELPER}.{_GUARD}", Need.RESTART)
def remembers_held_devices(run: Run) -> None:
    """A device that was prepared before a crash is refused to another claim after it."""
    device = run.claims.pick_one(shared=False)
    run.prepare(run.claims.create_one(device))
    second = run.claims.create_one(device)
    if not run.driver.prepare([second.ref]).refuses(second.ref):
        raise NotApplicableError("the driver gives one device to two claims also without a crash (PREP-012)")
    run.driver.kill()
    run.expect_refused(second.ref, f"device {device.pool}/{device.device} was prepared for two claims")


def _expect_working(run: Run, start: Callable[[], Instance]) -> None:
    """Start the driver; it must register and prepare a claim."""
    try:
        instance = start()
    except DriverNotRunningError as error:
        raise CheckFailedError(str(error)) from error
    expect_ok(instance.registration, "NotifyRegistrationStatus")
    run.prepare(run.claims.create_one())


# -- rolling updates: two instances on one node, as for a DaemonSet with maxSurge


@ROLLING.must("ROLL-001", f"{_WATCHER}, Seamless Upgrade; {_ROLLING}", Need.TWO_INSTANCES)
def two_instances_serve(run: Run) -> None:
    """Two instances serve at once, with different sockets and one name: the kubelet refuses a duplicate endpoint."""
    with _two_instances(run) as (old, new):
        socket = old.registration_socket
        expect(socket != new.registration_socket, f"both instances register at {socket}")
        expect(old.service_socket != new.service_socket, f"both instances serve at {old.service_socket}")
        for instance in (old, new):
            name = instance.registration_socket.name
            expect_ok(instance.prepare([]), name)
            expect(instance.registration_socket.exists(), f"{name} no longer exists")


@ROLLING.must("ROLL-002", f"{_ROLLING}; DRAPlugin.UnprepareResourceClaims", Need.TWO_INSTANCES)
def unprepares_claims_of_the_other_instance(run: Run) -> None:
    """A claim that one instance prepared is unprepared by the other, in both directions."""
    with _two_instances(run) as (old, new):
        before = run.spec_files()
        for one, other in ((old, new), (new, old)):
            claim = run.claims.create_one()
            _prepare(one, claim)
            accepted(other.unprepare([claim.ref]), [claim])
            run.expect_specs_removed(before, "after the other instance unprepared the claim")


@ROLLING.must("ROLL-003", f"{_ROLLING}; DRAPlugin.PrepareResourceClaims", Need.TWO_INSTANCES)
def both_instances_answer_the_same(run: Run) -> None:
    """A claim that one instance prepared gets the same devices from the other."""
    with _two_instances(run) as (old, new):
        claim = run.claims.create_one()
        first, second = _prepare(old, claim), _prepare(new, claim)
        expect(first.equivalent(second), "the instances answer differently")
        run.expect_defined(second.cdi_ids)


@ROLLING.must("ROLL-004", f"{_E2E}, rolling update", Need.TWO_INSTANCES)
def old_instance_ends(run: Run) -> None:
    """When the old instance ends, the new one keeps working, and the ResourceSlices stay as they are."""
    with _two_instances(run) as (old, new):
        _expect_takeover(run, old, new)


@ROLLING.must("ROLL-005", f"{_E2E}, failed update", Need.TWO_INSTANCES)
def new_instance_ends(run: Run) -> None:
    """When the new instance ends, the old one keeps working, and the ResourceSlices stay as they are."""
    with _two_instances(run) as (old, new):
        _expect_takeover(run, new, old)


@ROLLING.should("ROLL-006", f"DRAPlugin.{_GUARD}", Need.TWO_INSTANCES)
def refuses_a_device_held_through_the_other_instance(run: Run) -> None:
    """A device that one instance prepared for a claim is refused to another claim by the other instance."""
    with _two_instances(run) as (old, new):
        device = run.claims.pick_one(shared=False)
        _prepare(old, run.claims.create_one(device))
        second = run.claims.create_one(device)
        if not old.prepare([second.ref]).refuses(second.ref):
            raise NotApplicableError("the driver gives one device to two claims also without an update (PREP-012)")
        answer = new.prepare([second.ref])
        expect(answer.refuses(second.ref), f"device {device.pool}/{device.device} was prepared for two claims")


@contextmanager
def _two_instances(run: Run) -> Iterator[tuple[Instance, Instance]]:
    """Provide an old and a new instance; no other one runs until the context ends."""
    run.driver.start()
    run.driver.stop()
    with (
        run.driver.another_instance(str(uuid.uuid4())) as old,
        run.driver.another_instance(str(uuid.uuid4())) as new,
    ):
        yield old, new


def _prepare(instance: Instance, claim: TestClaim) -> ClaimResponse:
    return accepted(instance.prepare([claim.ref]), [claim])[claim.ref.uid]


def _expect_takeover(run: Run, ending: Instance, staying: Instance) -> None:
    """End one instance; the other must unprepare its claim, and the slices must not change."""
    before = slice_versions(run.published_slices())
    claim = run.claims.create_one()
    _prepare(ending, claim)
    run.driver.stop_instance(ending)
    name = staying.registration_socket.name
    expect(staying.registration_socket.exists(), f"{name} no longer exists")
    accepted(staying.unprepare([claim.ref]), [claim])
    reason = "the slices changed when one instance ended"
    run.expect_unchanged_slices(run.driver.name, before, reason, run.timeouts.quiet / 2)
