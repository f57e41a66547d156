"""The seven behaviours of KEP-5970, the proposed upstream suite, in one claim's life.

The KEP watches them through pods of a live cluster. Here the kit does what kubelet, scheduler and container runtime
do, so that each is seen where it happens: over the sockets, in the slices, in the CDI specs.
"""

from __future__ import annotations

from dra_sdk.tools.conformance import inventory
from dra_sdk.tools.conformance.cdi import View
from dra_sdk.tools.conformance.check import CheckFailed, Level, NotRun, expect
from dra_sdk.tools.conformance.levels.cdi import container
from dra_sdk.tools.conformance.run import Run
from dra_sdk.tools.scheduling.allocator import AllocationError

LEVEL = Level("kep5970", "The seven behaviours of KEP-5970")
KEP = "KEP-5970, Conformance Test Scope"


@LEVEL.must("KEP-001", f"{KEP} 1")
def driver_registration(run: Run) -> None:
    """The driver registers with the kubelet over the plugin's gRPC interface."""
    driver = run.driver
    expect(driver.info.type == "DRAPlugin", f"the kubelet's DRA manager is not for type {driver.info.type!r}")
    expect(driver.notified.ok, f"NotifyRegistrationStatus: {driver.notified.status}")
    expect(driver.first_call.ok, f"the service: {driver.first_call.status}")


@LEVEL.must("KEP-002", f"{KEP} 2")
def resource_slice_publishing(run: Run) -> None:
    """The driver publishes its devices in ResourceSlices: there is at least one device under its name."""
    expect(inventory.published(run.claims.slices()), f"no device of driver {run.driver.info.name} is published")


@LEVEL.must("KEP-003", f"{KEP} 3")
def device_allocation(run: Run) -> None:
    """The scheduler's match allocates a claim for a device of the driver, from what the slices say."""
    try:
        run.claims.scheduled()
    except AllocationError as error:
        raise CheckFailed(f"the scheduler cannot allocate a claim: {error}", slices=run.claims.slices()) from error


@LEVEL.must("KEP-004", f"{KEP} 4")
def node_prepare_resources(run: Run) -> None:
    """The driver prepares the claim's devices."""
    run.prepared(run.claims.scheduled())


@LEVEL.must("KEP-005", f"{KEP} 5")
def pod_runs_with_its_device(run: Run) -> None:
    """The pod's container can be created, and has what the driver injects by CDI."""
    cdi_ids = run.with_cdi(run.prepared_one(run.claims.scheduled()))
    spec = container(run, cdi_ids)
    expect(not View.of(spec).empty, "the container has nothing of its device", container=spec)


@LEVEL.must("KEP-006", f"{KEP} 6")
def node_unprepare_resources(run: Run) -> None:
    """The driver cleans up when the pod goes."""
    before = run.specs()
    claim = run.claims.scheduled()
    run.prepared(claim)
    run.unprepared(claim)
    run.nothing_left(before, "the claim was unprepared")


@LEVEL.must("KEP-007", f"{KEP} 7")
def resource_reuse(run: Run) -> None:
    """After that the same device can be prepared for another claim."""
    first = run.claims.scheduled()
    run.prepared(first)
    run.unprepared(first)
    second = run.claims.scheduled()
    if second.devices != first.devices:
        raise NotRun("the scheduler chose another device, though the first is free again")
    run.prepared(second)
