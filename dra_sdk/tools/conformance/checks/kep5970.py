"""The seven behaviours of KEP-5970, the proposed upstream suite, in the life of one claim.

The KEP observes them through the pods of a real cluster. Here the kit does what kubelet, scheduler and container
runtime do, so each behaviour is tested where it happens: on the sockets, in the slices, in the CDI specs.
"""

from __future__ import annotations

from typing import Final

from dra_sdk.tools.conformance.allocatable import published_devices
from dra_sdk.tools.conformance.cdi import InjectedEdits
from dra_sdk.tools.conformance.check import Level
from dra_sdk.tools.conformance.outcomes import CheckFailedError, NotRunError, expect, expect_ok
from dra_sdk.tools.conformance.run import Run
from dra_sdk.tools.scheduling.allocator import AllocationError

KEP5970: Final = Level("kep5970", "The seven behaviours of KEP-5970")

_SCOPE: Final = "KEP-5970, Conformance Test Scope"


@KEP5970.must("KEP-001", f"{_SCOPE} 1")
def driver_registration(run: Run) -> None:
    """The driver registers with the kubelet over the plugin's gRPC interface."""
    instance = run.instance
    expect(instance.info.type == "DRAPlugin", f"type is {instance.info.type!r}, not that of a DRA driver")
    expect_ok(instance.registration, "NotifyRegistrationStatus")
    expect_ok(instance.first_prepare, "the service")


@KEP5970.must("KEP-002", f"{_SCOPE} 2")
def resource_slice_publishing(run: Run) -> None:
    """The driver publishes its devices in ResourceSlices: at least one device under its name."""
    expect(published_devices(run.claims.slices()), f"no device of driver {run.instance.info.name} is published")


@KEP5970.must("KEP-003", f"{_SCOPE} 3")
def device_allocation(run: Run) -> None:
    """The scheduler can allocate a claim for a device of the driver from the published slices."""
    try:
        run.claims.create_scheduled()
    except AllocationError as error:
        reason = f"the scheduler cannot allocate a claim: {error}"
        raise CheckFailedError(reason, slices=run.claims.slices()) from error


@KEP5970.must("KEP-004", f"{_SCOPE} 4")
def node_prepare_resources(run: Run) -> None:
    """The driver prepares the claim's devices."""
    run.prepare(run.claims.create_scheduled())


@KEP5970.must("KEP-005", f"{_SCOPE} 5")
def pod_runs_with_its_device(run: Run) -> None:
    """The pod's container can be created, and has what the driver injects by CDI."""
    spec = run.container(run.cdi_ids(run.prepare_one(run.claims.create_scheduled())))
    expect(not InjectedEdits.of(spec).empty, "the container has nothing of its device", container=spec)


@KEP5970.must("KEP-006", f"{_SCOPE} 6")
def node_unprepare_resources(run: Run) -> None:
    """The driver cleans up when the pod ends."""
    before = run.spec_files()
    claim = run.prepared(run.claims.create_scheduled())
    run.unprepare(claim)
    run.expect_specs_removed(before, "after the claim was unprepared")


@KEP5970.must("KEP-007", f"{_SCOPE} 7")
def resource_reuse(run: Run) -> None:
    """Afterwards the same device can be prepared for another claim."""
    first = run.prepared(run.claims.create_scheduled())
    run.unprepare(first)
    second = run.claims.create_scheduled()
    if second.devices != first.devices:
        raise NotRunError("the scheduler chose another device although the first one is free again")
    run.prepare(second)
