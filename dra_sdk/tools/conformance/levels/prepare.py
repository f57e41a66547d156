"""NodePrepareResources: the right answer for the right claims, and no answer for the wrong ones."""

from __future__ import annotations

import uuid

from dra_sdk.tools.conformance.check import CheckFailed, Level, NotApplicable, expect
from dra_sdk.tools.conformance.plugin import V1
from dra_sdk.tools.conformance.run import Run, entries_json
from dra_sdk.tools.simulator.kubelet.records import ClaimRef

LEVEL = Level("prepare", "NodePrepareResources")
MANAGER = "Kubernetes pkg/kubelet/cm/dra/manager.go, prepareResources"
PROTO = "k8s.io/kubelet pkg/apis/dra/v1/api.proto"
HELPER = "k8s.io/dynamic-resource-allocation kubeletplugin, DRAPlugin.PrepareResourceClaims"
KEP = "KEP-4381"
OTHER = "other.conformance.example.com"


@LEVEL.must("PREP-001", MANAGER)
def one_entry_for_a_claim(run: Run) -> None:
    """An allocated claim is prepared: the answer has one entry, under the claim's UID, without an error."""
    run.prepared(run.claims.one())


@LEVEL.must("PREP-002", f"{PROTO}, Device")
def names_allocated_devices_only(run: Run) -> None:
    """Every device of the answer is one of those that were allocated, by pool and name."""
    claim = run.claims.one()
    devices = run.prepared_one(claim).devices
    strange = [f"{each.pool}/{each.device}" for each in devices if (each.pool, each.device) not in claim.devices]
    expect(not strange, f"not allocated, yet answered: {', '.join(strange)}", allocated=list(claim.results))


@LEVEL.should("PREP-003", "KEP-3695 and KEP-4680: pod resources and health are told by the answer's devices")
def names_all_allocated_devices(run: Run) -> None:
    """Every allocated device is in the answer, also one without CDI devices: pod resources and health go by it."""
    claim = run.claims.one()
    found = {(each.pool, each.device) for each in run.prepared_one(claim).devices}
    expect(claim.devices <= found, "allocated devices are missing in the answer", allocated=list(claim.results))


@LEVEL.must("PREP-004", f"{PROTO}, Device.request_names; KEP-4816")
def names_requests_without_subrequests(run: Run) -> None:
    """request_names are requests of the claim, and never `request/subrequest`: containers ask for requests."""
    slot = run.claims.slots()[0]
    for name in ("alone", "either/first"):
        claim = run.claims.one(slot, requests=[name])
        for device in run.prepared_one(claim).devices:
            wrong = [each for each in device.requests if each not in claim.requests]
            expect(not wrong, f"allocated for request {name!r}, answered for {wrong}")
        run.unprepared(claim)


@LEVEL.must("PREP-005", MANAGER)
def prepares_all_claims_of_a_call(run: Run) -> None:
    """All claims of a call are prepared, with one entry each: the kubelet sends a pod's claims together."""
    one, other = run.claims.slots(2)
    run.prepared(run.claims.one(one), run.claims.one(other))


@LEVEL.must("PREP-006", "KEP-4381, Managing resources")
def refuses_a_claim_that_does_not_exist(run: Run) -> None:
    """A claim that the API server does not have is refused."""
    absent = run.claims.absent()
    answer = run.subject.prepare([absent])
    expect(answer.refuses(absent), "a claim that does not exist was prepared", entries=entries_json(answer.entries))


@LEVEL.must("PREP-007", f"{HELPER}; Kubernetes test/e2e/dra, must not run a pod if a claim is not ready")
def refuses_a_claim_that_is_not_allocated(run: Run) -> None:
    """A claim without an allocation is refused."""
    claim = run.claims.make(run.claims.slots(), allocated=False)
    run.refused(claim, "a claim without an allocation was prepared")


@LEVEL.must("PREP-008", "k8s.io/dynamic-resource-allocation kubeletplugin: ResourceClaim got replaced")
def refuses_a_claim_that_was_replaced(run: Run) -> None:
    """A claim whose UID is not the one asked for is refused: it was deleted and made anew under the same name."""
    claim = run.claims.one()
    old = ClaimRef(claim.ref.namespace, claim.ref.name, str(uuid.uuid4()))
    answer = run.subject.prepare([old])
    expect(answer.refuses(old), "the claim of another UID was prepared", entries=entries_json(answer.entries))


@LEVEL.must("PREP-009", f"{MANAGER}: the pod is tried again")
def prepares_a_good_claim_after_a_bad_one(run: Run) -> None:
    """A call that failed for one of its claims leaves nothing behind that keeps the others from being prepared."""
    good, bad = run.claims.one(), run.claims.absent()
    answer = run.subject.prepare([good.ref, bad])
    expect(answer.refuses(bad), "a claim that does not exist was prepared", entries=entries_json(answer.entries))
    run.prepared(good)


@LEVEL.must("PREP-010", f"{KEP}, Communicating allocation to the DRA driver")
def leaves_other_drivers_to_themselves(run: Run) -> None:
    """Results and configuration for other drivers in the same claim are none of this driver's business."""
    foreign = {"request": "request-0", "driver": OTHER, "pool": "any", "device": "any"}
    opaque = {"driver": OTHER, "parameters": {"apiVersion": f"{OTHER}/v1", "kind": "Unheard"}}
    claim = run.claims.one(results=[foreign], config=[{"source": "FromClaim", "opaque": opaque}])
    devices = run.prepared_one(claim).devices
    strange = [f"{each.pool}/{each.device}" for each in devices if (each.pool, each.device) not in claim.devices]
    expect(not strange, f"devices of another driver were answered: {', '.join(strange)}")


@LEVEL.should(
    "PREP-011", f"{KEP}, Communicating allocation to the DRA driver; k8s.io/api resource/v1 OpaqueDeviceConfiguration"
)
def refuses_configuration_that_it_does_not_know(run: Run) -> None:
    """Parameters for this driver that it does not understand make preparing fail, instead of being ignored."""
    opaque = {"driver": run.subject.current.info.name, "parameters": {"apiVersion": f"{OTHER}/v9", "kind": "Unheard"}}
    claim = run.claims.one(config=[{"source": "FromClaim", "opaque": opaque}])
    run.refused(claim, "a claim with parameters of an unknown kind was prepared")


@LEVEL.should("PREP-012", f"{HELPER}: the last line of defense")
def refuses_a_device_that_another_claim_holds(run: Run) -> None:
    """A device that is prepared for one claim is refused to another."""
    (slot,) = run.claims.slots(1, shared=False)
    run.prepared(run.claims.one(slot))
    second = run.claims.one(slot)
    run.refused(second, f"device {slot.pool}/{slot.device} was prepared for two claims")


@LEVEL.should("PREP-013", "KEP-5018, DRA: AdminAccess")
def gives_admins_a_device_in_use(run: Run) -> None:
    """With admin access a device is prepared although another claim holds it."""
    (slot,) = run.claims.slots(1, shared=False)
    run.prepared(run.claims.one(slot))
    run.prepared(run.claims.one(slot, admin=True))


@LEVEL.must("PREP-014", f"{PROTO}, Device.share_id; KEP-5075")
def answers_each_share_with_its_id(run: Run) -> None:
    """Each share of a device that is allocated several times has its own device in the answer, with its share_id."""
    if V1 not in run.driver.info.supported_versions:
        raise NotApplicable(f"{V1} is not offered, and older versions have no share_id")
    slots = run.claims.slots(2, shared=True)
    claim = run.claims.make(slots)
    found = sorted(str(each.share_id) for each in run.prepared_one(claim, V1).devices)
    wanted = sorted(each["shareID"] for each in claim.results)
    expect(found == wanted, f"allocated were the shares {wanted}, answered {found}")


@LEVEL.must("PREP-015", f"{KEP}, Devices as a named list: must double-check that the devices are still available")
def refuses_a_device_that_is_not_there(run: Run) -> None:
    """A device that the node does not have, or no longer, is refused."""
    slot = run.claims.slots()[0]
    claim = run.claims.one(slot, device="conformance-absent")
    answer = run.subject.prepare([claim.ref])
    if not answer.refuses(claim.ref):
        raise CheckFailed("device conformance-absent was prepared", entries=entries_json(answer.entries))
