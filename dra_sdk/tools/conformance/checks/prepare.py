"""NodePrepareResources and NodeUnprepareResources: which claims are prepared, which are refused, and the answers."""

from __future__ import annotations

import uuid
from typing import Final

from dra_sdk.model.claim import ClaimRef
from dra_sdk.tools.conformance.check import Level, Need
from dra_sdk.tools.conformance.claims import TestClaim
from dra_sdk.tools.conformance.outcomes import NotApplicableError, expect
from dra_sdk.tools.conformance.run import Run
from dra_sdk.tools.conformance.timeouts import wait_until
from dra_sdk.tools.node_archive.trees import Tree, differences, tree
from dra_sdk.tools.simulator.kubelet.calls import V1

PREPARE: Final = Level("prepare", "NodePrepareResources")
UNPREPARE: Final = Level("unprepare", "NodeUnprepareResources")

_MANAGER: Final = "Kubernetes pkg/kubelet/cm/dra/manager.go"
_PROTO: Final = "k8s.io/kubelet pkg/apis/dra/v1/api.proto"
_HELPER: Final = "k8s.io/dynamic-resource-allocation kubeletplugin, DRAPlugin.PrepareResourceClaims"
_UNPREPARE_HELPER: Final = "k8s.io/dynamic-resource-allocation kubeletplugin, DRAPlugin.UnprepareResourceClaims"
_KEP: Final = "KEP-4381"
_CONFIG_API: Final = "k8s.io/api resource/v1 OpaqueDeviceConfiguration"
OTHER_DRIVER: Final = "other.conformance.example.com"
ABSENT_DEVICE: Final = "conformance-absent"
_SHOWN: Final = 10  # files that a report names


@PREPARE.must("PREP-001", f"{_MANAGER}, prepareResources")
def one_entry_per_claim(run: Run) -> None:
    """An allocated claim is prepared: the answer has one entry, under the claim's UID, without an error."""
    run.prepare(run.claims.create_one())


@PREPARE.must("PREP-002", f"{_PROTO}, Device")
def answers_only_allocated_devices(run: Run) -> None:
    """Every device in the answer was allocated to the claim, by pool and name."""
    claim = run.claims.create_one()
    extra = _not_allocated(run, claim)
    expect(not extra, f"devices in the answer that were not allocated: {extra}", allocated=list(claim.results))


@PREPARE.should("PREP-003", "KEP-3695 and KEP-4680: pod resources and health use the devices in the answer")
def answers_all_allocated_devices(run: Run) -> None:
    """Every allocated device is in the answer, even without CDI devices: pod resources and health depend on it."""
    claim = run.claims.create_one()
    answered = {(device.pool, device.device) for device in run.prepare_one(claim).devices}
    expect(claim.devices <= answered, "allocated devices are missing in the answer", allocated=list(claim.results))


@PREPARE.must("PREP-004", f"{_PROTO}, Device.request_names; KEP-4816")
def request_names_without_subrequests(run: Run) -> None:
    """request_names are requests of the claim, never `request/subrequest`: containers refer to requests."""
    device = run.claims.pick_one()
    for name in ("alone", "either/first"):
        claim = run.claims.create_one(device, requests=[name])
        for prepared in run.prepare_one(claim).devices:
            wrong = [request for request in prepared.requests if request not in claim.requests]
            expect(not wrong, f"allocated for request {name!r}, answered for {wrong}")
        run.unprepare(claim)


@PREPARE.must("PREP-005", f"{_MANAGER}, prepareResources")
def prepares_all_claims_of_a_call(run: Run) -> None:
    """All claims of a call are prepared, with one entry each: the kubelet sends a pod's claims together."""
    one, other = run.claims.pick(2)
    run.prepare(run.claims.create_one(one), run.claims.create_one(other))


@PREPARE.must("PREP-006", "KEP-4381, Managing resources")
def refuses_a_missing_claim(run: Run) -> None:
    """A claim that the API server does not have is refused."""
    run.expect_refused(run.claims.missing_ref(), "a claim that does not exist was prepared")


@PREPARE.must("PREP-007", f"{_HELPER}; Kubernetes test/e2e/dra, must not run a pod if a claim is not ready")
def refuses_an_unallocated_claim(run: Run) -> None:
    """A claim without an allocation is refused."""
    claim = run.claims.create_one(allocated=False)
    run.expect_refused(claim.ref, "a claim without an allocation was prepared")


@PREPARE.must("PREP-008", "k8s.io/dynamic-resource-allocation kubeletplugin: ResourceClaim got replaced")
def refuses_a_replaced_claim(run: Run) -> None:
    """A claim with another UID than requested is refused: it was deleted and created again under the same name."""
    claim = run.claims.create_one()
    old = ClaimRef(claim.ref.namespace, claim.ref.name, str(uuid.uuid4()))
    run.expect_refused(old, "a claim with another UID was prepared")


@PREPARE.must("PREP-009", f"{_MANAGER}, prepareResources: the pod is tried again")
def prepares_after_a_partial_failure(run: Run) -> None:
    """After a call that failed for one of its claims, the other claims can still be prepared."""
    good, missing = run.claims.create_one(), run.claims.missing_ref()
    run.expect_refused(missing, "a claim that does not exist was prepared", good.ref)
    run.prepare(good)


@PREPARE.must("PREP-010", f"{_KEP}, Communicating allocation to the DRA driver")
def ignores_other_drivers(run: Run) -> None:
    """Results and configuration for other drivers in the same claim are ignored."""
    foreign = {"request": "request-0", "driver": OTHER_DRIVER, "pool": "any", "device": "any"}
    opaque = {"driver": OTHER_DRIVER, "parameters": {"apiVersion": f"{OTHER_DRIVER}/v1", "kind": "Unknown"}}
    claim = run.claims.create_one(results=[foreign], config=[{"source": "FromClaim", "opaque": opaque}])
    extra = _not_allocated(run, claim)
    expect(not extra, f"the answer has devices of another driver: {extra}")


@PREPARE.should("PREP-011", f"{_KEP}, Communicating allocation to the DRA driver; {_CONFIG_API}")
def refuses_unknown_configuration(run: Run) -> None:
    """Parameters for this driver that it does not understand make prepare fail; they are not ignored."""
    parameters = {"apiVersion": f"{OTHER_DRIVER}/v9", "kind": "Unknown"}
    opaque = {"driver": run.instance.info.name, "parameters": parameters}
    claim = run.claims.create_one(config=[{"source": "FromClaim", "opaque": opaque}])
    run.expect_refused(claim.ref, "a claim with parameters of an unknown kind was prepared")


@PREPARE.should("PREP-012", f"{_HELPER}: the last line of defense")
def refuses_a_held_device(run: Run) -> None:
    """A device that is prepared for one claim is refused to another claim."""
    device = run.claims.pick_one(shared=False)
    run.prepare(run.claims.create_one(device))
    second = run.claims.create_one(device)
    run.expect_refused(second.ref, f"device {device.pool}/{device.device} was prepared for two claims")


@PREPARE.should("PREP-013", "KEP-5018, DRA: AdminAccess")
def gives_admins_a_held_device(run: Run) -> None:
    """With admin access a device is prepared even if another claim holds it."""
    device = run.claims.pick_one(shared=False)
    run.prepare(run.claims.create_one(device))
    run.prepare(run.claims.create_one(device, admin=True))


@PREPARE.must("PREP-014", f"{_PROTO}, Device.share_id; KEP-5075")
def answers_each_share_with_its_id(run: Run) -> None:
    """Each share of a device that is allocated several times is a separate device in the answer, with its share_id."""
    if V1 not in run.instance.info.supported_versions:
        raise NotApplicableError(f"{V1} is not offered, and older versions have no share_id")
    claim = run.claims.create(run.claims.pick(2, shared=True))
    answered = sorted(str(device.share_id) for device in run.prepare_one(claim, V1).devices)
    allocated = sorted(result["shareID"] for result in claim.results)
    expect(answered == allocated, f"the shares {allocated} were allocated, the answer has {answered}")


@PREPARE.must("PREP-015", f"{_KEP}, Devices as a named list: must double-check that the devices are still available")
def refuses_an_absent_device(run: Run) -> None:
    """A device that the node does not have, or no longer has, is refused."""
    claim = run.claims.create_one(device_name=ABSENT_DEVICE)
    run.expect_refused(claim.ref, f"device {ABSENT_DEVICE} was prepared")


@UNPREPARE.must("UNPREP-001", f"{_MANAGER}, unprepareResources")
def one_entry_per_unprepared_claim(run: Run) -> None:
    """A prepared claim is unprepared: the answer has one entry, under the claim's UID, without an error."""
    claim = run.prepared()
    run.unprepare(claim)


@UNPREPARE.must("UNPREP-002", _UNPREPARE_HELPER)
def accepts_never_prepared_claims(run: Run) -> None:
    """Unpreparing a claim that was never prepared is not an error, also in one call with a prepared claim."""
    claim = run.prepared()
    first, second = (TestClaim(run.claims.missing_ref()) for _ in range(2))
    run.unprepare(first, claim, second)


@UNPREPARE.must("UNPREP-003", _UNPREPARE_HELPER)
def unprepares_a_deleted_claim(run: Run) -> None:
    """A claim is unprepared even if the API server no longer has it."""
    claim = run.claims.create_one()
    before = run.spec_files()
    run.prepare(claim)
    run.claims.delete(claim)
    run.unprepare(claim)
    run.expect_specs_removed(before, "after the claim was unprepared")


@UNPREPARE.must("UNPREP-004", "KEP-4381, NodePrepareResource: the kubelet may choose to unprepare after a failure")
def unprepares_after_a_failed_prepare(run: Run) -> None:
    """A claim whose preparation failed can be unprepared, and nothing of it remains."""
    before = run.spec_files()
    claim = run.claims.create_one(device_name=ABSENT_DEVICE)
    run.driver.prepare([claim.ref])
    run.unprepare(claim)
    run.expect_specs_removed(before, "after the preparation failed and the claim was unprepared")


@UNPREPARE.must(
    "UNPREP-005", "KEP-4381, NodeUnprepareResource: it undoes what NodePrepareResource has done", Need.HOST_TREE
)
def undoes_what_it_changed_on_the_host(run: Run) -> None:
    """What preparing a claim changes in the host's `/sys`, `/proc` and `/dev` is as before once it is unprepared."""
    claim = run.claims.create_one()
    before = _kernel_files(run)
    run.prepare(claim)
    run.unprepare(claim)
    changed: list[str] = []

    def undone() -> bool:
        changed[:] = differences(before, _kernel_files(run))
        return not changed

    wait_until(undone, run.timeouts.settle)
    expect(not changed, f"after the claim was unprepared, the host is not as before: {'; '.join(changed[:_SHOWN])}")


def _kernel_files(run: Run) -> Tree:
    """Return the files of the host's `/sys`, `/proc` and `/dev`, while the driver runs."""
    run.driver.start()
    roots = {name: run.environment.host_root / name for name in ("sys", "proc", "dev")}
    trees = {name: tree(root) for name, root in roots.items() if root.is_dir()}
    return {f"/{name}/{path}": content for name, files in trees.items() for path, content in files.items()}


def _not_allocated(run: Run, claim: TestClaim) -> str:
    """Return the devices in the answer for a claim that were not allocated to it."""
    devices = run.prepare_one(claim).devices
    names = [(device.pool, device.device) for device in devices]
    return ", ".join(f"{pool}/{device}" for pool, device in names if (pool, device) not in claim.devices)
