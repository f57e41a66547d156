"""Two instances of one driver on a node, as during a rolling update of a DaemonSet with maxSurge."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dra_sdk.tools.conformance.check import Level, Need, NotApplicable, expect
from dra_sdk.tools.conformance.claims import TestClaim
from dra_sdk.tools.conformance.instance import Instance, Waiting
from dra_sdk.tools.conformance.levels.idempotency import alike
from dra_sdk.tools.conformance.levels.restart import identities, published
from dra_sdk.tools.conformance.plugin import Entry
from dra_sdk.tools.conformance.run import Run, accepted

LEVEL = Level("rolling", "Rolling updates")
HELPER = "k8s.io/dynamic-resource-allocation kubeletplugin, RollingUpdate"
E2E = "Kubernetes test/e2e/dra, seamless upgrade"
WATCHER = "Kubernetes pkg/kubelet/pluginmanager/pluginwatcher/README.md, Seamless Upgrade"


@dataclass(frozen=True)
class Pair:
    """The old instance and the new one."""

    run: Run
    old: Instance
    new: Instance

    def prepare(self, instance: Instance, claim: TestClaim) -> Entry:
        """Prepare through one of them."""
        return accepted(instance.service.prepare([claim.ref], instance.version), [claim])[claim.ref.uid]

    def unprepare(self, instance: Instance, claim: TestClaim) -> None:
        """Unprepare through one of them."""
        accepted(instance.service.unprepare([claim.ref], instance.version), [claim])


@contextmanager
def pair(run: Run) -> Iterator[Pair]:
    """Two instances that run at once; no other does meanwhile."""
    run.start()
    run.subject.stop()
    with run.subject.beside(str(uuid.uuid4())) as old, run.subject.beside(str(uuid.uuid4())) as new:
        yield Pair(run, old, new)


@LEVEL.must("ROLL-001", f"{WATCHER}; {HELPER}", Need.INSTANCES)
def side_by_side(run: Run) -> None:
    """Two instances serve at once, with sockets of their own and one name: the kubelet refuses an endpoint twice."""
    with pair(run) as both:
        expect(both.old.registration != both.new.registration, f"both register at {both.old.registration}")
        expect(both.old.endpoint != both.new.endpoint, f"both serve at {both.old.endpoint}")
        for instance in (both.old, both.new):
            answer = instance.service.prepare([], instance.version)
            expect(answer.ok, f"{instance.registration.name}: {answer.status}")
            expect(instance.registration.exists(), f"{instance.registration.name} is gone")


@LEVEL.must("ROLL-002", f"{HELPER}; DRAPlugin.UnprepareResourceClaims", Need.INSTANCES)
def unprepares_what_the_other_prepared(run: Run) -> None:
    """A claim that one instance prepared is unprepared by the other, in both directions."""
    with pair(run) as both:
        before = run.specs()
        for one, other in ((both.old, both.new), (both.new, both.old)):
            claim = run.claims.one()
            both.prepare(one, claim)
            both.unprepare(other, claim)
            run.nothing_left(before, "the claim was unprepared by the other instance")


@LEVEL.must("ROLL-003", f"{HELPER}; DRAPlugin.PrepareResourceClaims", Need.INSTANCES)
def answers_as_the_other(run: Run) -> None:
    """A claim that one instance prepared is answered by the other with the same devices."""
    with pair(run) as both:
        claim = run.claims.one()
        first, second = both.prepare(both.old, claim), both.prepare(both.new, claim)
        expect(alike(first, second), "the instances answer differently")
        missing = run.cdi.unresolved(second.cdi_ids)
        expect(not missing, f"no spec defines {', '.join(missing)}")


@LEVEL.must("ROLL-004", f"{E2E}, rolling update", Need.INSTANCES)
def the_old_one_ends(run: Run) -> None:
    """As the old instance ends, the new one goes on, and the ResourceSlices stay as they are."""
    with pair(run) as both:
        _ends(both, both.old, both.new)


@LEVEL.must("ROLL-005", f"{E2E}, failed update", Need.INSTANCES)
def the_new_one_ends(run: Run) -> None:
    """As the new instance ends, the old one goes on, and the ResourceSlices stay as they are."""
    with pair(run) as both:
        _ends(both, both.new, both.old)


@LEVEL.should("ROLL-006", "DRAPlugin.PrepareResourceClaims: the last line of defense", Need.INSTANCES)
def refuses_a_device_that_the_other_gave_away(run: Run) -> None:
    """A device that one instance prepared for a claim is refused to another claim by the other instance."""
    with pair(run) as both:
        (slot,) = run.claims.slots(1, shared=False)
        both.prepare(both.old, run.claims.one(slot))
        second = run.claims.one(slot)
        if not both.old.service.prepare([second.ref], both.old.version).refuses(second.ref):
            raise NotApplicable("the driver gives a device to two claims without an update as well (PREP-012)")
        answer = both.new.service.prepare([second.ref], both.new.version)
        expect(answer.refuses(second.ref), f"device {slot.pool}/{slot.device} was prepared for two claims")


def _ends(both: Pair, ending: Instance, staying: Instance) -> None:
    run = both.run
    before = published(run)
    claim = run.claims.one()
    both.prepare(ending, claim)
    run.subject.end(ending)
    expect(staying.registration.exists(), f"{staying.registration.name} is gone as well")
    both.unprepare(staying, claim)
    waiting = Waiting(run.patience.quiet / 2)
    while waiting.pause(0.1):
        after = identities(run.api.slices(run.subject.name))
        expect(after == before, "the slices changed as one instance ended", before=before, after=after)
