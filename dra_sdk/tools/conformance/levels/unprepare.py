"""NodeUnprepareResources: by name and UID alone, and for whatever claim."""

from __future__ import annotations

from dra_sdk.tools.conformance.check import Level
from dra_sdk.tools.conformance.claims import TestClaim
from dra_sdk.tools.conformance.run import Run, accepted

LEVEL = Level("unprepare", "NodeUnprepareResources")
MANAGER = "Kubernetes pkg/kubelet/cm/dra/manager.go, unprepareResources"
HELPER = "k8s.io/dynamic-resource-allocation kubeletplugin, DRAPlugin.UnprepareResourceClaims"


@LEVEL.must("UNPREP-001", MANAGER)
def one_entry_for_each_claim(run: Run) -> None:
    """A prepared claim is unprepared: the answer has one entry, under the claim's UID, without an error."""
    claim = run.claims.one()
    run.prepared(claim)
    run.unprepared(claim)


@LEVEL.must("UNPREP-002", HELPER)
def never_prepared(run: Run) -> None:
    """It is no error to unprepare a claim that was never prepared, also beside one that was."""
    claim = run.claims.one()
    run.prepared(claim)
    strangers = [TestClaim(run.claims.absent()) for _ in range(2)]
    run.unprepared(strangers[0], claim, strangers[1])


@LEVEL.must("UNPREP-003", HELPER)
def without_the_claim(run: Run) -> None:
    """A claim is unprepared although the API server no longer has it."""
    claim = run.claims.one()
    before = run.specs()
    run.prepared(claim)
    run.claims.delete(claim)
    run.unprepared(claim)
    run.nothing_left(before, "the claim was unprepared")


@LEVEL.must("UNPREP-004", "KEP-4381, NodePrepareResource: the kubelet may choose to unprepare after a failure")
def after_a_failed_prepare(run: Run) -> None:
    """A claim whose preparing failed can be unprepared, and nothing is left of it."""
    before = run.specs()
    claim = run.claims.one(device="conformance-absent")
    run.subject.prepare([claim.ref])
    accepted(run.subject.unprepare([claim.ref]), [claim])
    run.nothing_left(before, "preparing failed and the claim was unprepared")
