"""The result of scheduling: where each pod runs and which devices each claim has; and how two results differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import DeviceId
from dra_sdk.tools.scheduling.cluster.device_taint_eviction import Eviction
from dra_sdk.tools.scheduling.cluster.snapshot import ObjectKey, Snapshot

NO_NODE_PREFIX: Final = "0 of "
"""The start of a reason that counts rejected nodes; other reasons do not depend on the nodes."""


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """Where a pod runs, or why it does not run.

    pod: namespace and name.
    node: its node; None if it does not run.
    reason: why it does not run, in one sentence.
    claims: the existing claims that it uses, in the order of its spec, that for extended resources last.
    scheduled: whether this run put it on the node.
    """

    pod: ObjectKey
    node: str | None
    reason: str = ""
    claims: tuple[ObjectKey, ...] = ()
    scheduled: bool = False

    @property
    def running(self) -> bool:
        """Whether it was on its node before this run."""
        return self.node is not None and not self.scheduled


@dataclass(frozen=True, slots=True)
class ClaimOutcome:
    """The allocation of a claim, or why it has none.

    claim: namespace and name.
    allocation: `status.allocation`, None without one.
    node: the node of the pods that use it.
    reason: why it is not allocated, in one sentence.
    hypothetical: whether no pod uses it. kube-scheduler leaves such a claim alone; here it is allocated as if a pod
        used it that tolerates every taint, to show what it would get.
    """

    claim: ObjectKey
    allocation: JSON | None
    node: str | None = None
    reason: str = ""
    hypothetical: bool = False

    @property
    def results(self) -> tuple[JSON, ...]:
        """The allocated devices, as in `status.allocation.devices.results`."""
        devices: Mapping[str, Any] = (self.allocation or {}).get("devices") or {}
        return tuple(devices.get("results") or ())


@dataclass(frozen=True, slots=True)
class Preemption:
    """A pod for which others of lower priority are evicted.

    pod: the pod, namespace and name.
    priority: its priority.
    node: the node for which it is nominated.
    victims: the evicted pods, the more important first.
    missing: the resources of which the node had too little.
    violations: how many of the victims violate a PodDisruptionBudget.
    """

    pod: ObjectKey
    priority: int
    node: str
    victims: tuple[ObjectKey, ...]
    missing: tuple[str, ...]
    violations: int = 0

    def to_json(self) -> JSON:
        """Return it as JSON; the pods as `namespace` and `name`."""
        pod, *victims = ({"namespace": key[0], "name": key[1]} for key in (self.pod, *self.victims))
        fields: JSON = {"pod": pod, "priority": self.priority, "node": self.node, "victims": victims}
        return fields | {"missing": list(self.missing), "violations": self.violations}


@dataclass(frozen=True)
class SchedulingOutcome:
    """The result of `schedule`.

    snapshot: the cluster afterwards, with pods bound and claims made, allocated and reserved.
    pods: one placement for each pod in the snapshot that is not finished.
    claims: one outcome for each claim in the snapshot.
    evicted: the evicted pods, and claims without a pod from which one would be evicted, with the reason.
    preemptions: the pods for which others were evicted, in order; the victims are in `evicted`.
    notes: sentences about what was not simulated or looks wrong.
    """

    snapshot: Snapshot
    pods: tuple[PodPlacement, ...]
    claims: tuple[ClaimOutcome, ...]
    evicted: Mapping[ObjectKey, Eviction] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    preemptions: tuple[Preemption, ...] = ()

    @cached_property
    def pods_by_key(self) -> Mapping[ObjectKey, PodPlacement]:
        """The pods by namespace and name."""
        return {placement.pod: placement for placement in self.pods}

    @cached_property
    def claims_by_key(self) -> Mapping[ObjectKey, ClaimOutcome]:
        """The claims by namespace and name."""
        return {outcome.claim: outcome for outcome in self.claims}

    @property
    def unplaced(self) -> tuple[PodPlacement, ...]:
        """The pods without a node."""
        return tuple(placement for placement in self.pods if placement.node is None)

    @property
    def unallocated(self) -> tuple[ClaimOutcome, ...]:
        """The claims that no pod uses and that cannot be allocated."""
        return tuple(outcome for outcome in self.claims if outcome.hypothetical and outcome.allocation is None)

    @property
    def complete(self) -> bool:
        """Whether every pod has a node and every claim its devices."""
        return not self.unplaced and not self.unallocated


DevicesByRequest = Mapping[str, tuple[str, ...]]
"""Devices as `driver/pool/device` by request; of several claims, by `claim/request`."""


@dataclass(frozen=True, slots=True)
class PlacementState:
    """The node and the devices of a pod or claim.

    node: the node; None if it has none.
    devices: the devices by request.
    """

    node: str | None
    devices: DevicesByRequest

    def to_json(self) -> JSON:
        """Return it as JSON."""
        return {"node": self.node, "devices": {request: list(names) for request, names in self.devices.items()}}


@dataclass(frozen=True, slots=True)
class PlacementChange:
    """A pod, or a claim that no pod uses, that differs between two outcomes.

    subject: namespace and name.
    is_pod: True for a pod, False for a claim.
    before: its state before; None if it did not exist.
    after: its state after; None if it does not exist any more.
    evicted: why it had to leave its node; empty if it did not.
    reason: why it has no node now.
    """

    subject: ObjectKey
    is_pod: bool
    before: PlacementState | None
    after: PlacementState | None
    evicted: str = ""
    reason: str = ""

    @property
    def lost(self) -> bool:
        """Whether it had a node and has none now."""
        return bool(self.before and self.before.node) and not (self.after and self.after.node)

    def to_json(self) -> JSON:
        """Return it as JSON: namespace, name, and the states, each null if it did or does not exist."""
        namespace, name = self.subject
        fields: JSON = {"kind": "Pod" if self.is_pod else "ResourceClaim", "namespace": namespace, "name": name}
        states = {"before": self.before, "after": self.after}
        fields |= {key: state and state.to_json() for key, state in states.items()}
        return fields | {key: text for key, text in (("evicted", self.evicted), ("reason", self.reason)) if text}


def compare_outcomes(before: SchedulingOutcome, after: SchedulingOutcome) -> tuple[PlacementChange, ...]:
    """Return the changes, pods first, in the order of `after`; removed pods come last."""
    return (*_pod_changes(before, after), *_claim_changes(before, after))


def _pod_changes(before: SchedulingOutcome, after: SchedulingOutcome) -> Iterator[PlacementChange]:
    removed = [placement.pod for placement in before.pods if placement.pod not in after.pods_by_key]
    for key in (*(placement.pod for placement in after.pods), *removed):
        was, now = _pod_state(before, key), _pod_state(after, key)
        evicted = str(after.evicted.get(key, ""))
        if was != now or evicted:
            reason = after.pods_by_key[key].reason if now else ""
            yield PlacementChange(key, True, was, now, evicted, reason)


def _claim_changes(before: SchedulingOutcome, after: SchedulingOutcome) -> Iterator[PlacementChange]:
    for outcome in after.claims:
        old = before.claims_by_key.get(outcome.claim)
        if outcome.hypothetical:
            was, now = _claim_state(old) if old else None, _claim_state(outcome)
            evicted = str(after.evicted.get(outcome.claim, ""))
            if was != now or evicted:
                yield PlacementChange(outcome.claim, False, was, now, evicted, outcome.reason)


def _pod_state(outcome: SchedulingOutcome, key: ObjectKey) -> PlacementState | None:
    placement = outcome.pods_by_key.get(key)
    if placement is None:
        return None
    claims = [outcome.claims_by_key[claim_key] for claim_key in placement.claims if claim_key in outcome.claims_by_key]
    devices: dict[str, tuple[str, ...]] = {}
    for claim in claims if placement.node is not None else ():
        for request, names in _devices_by_request(claim).items():
            devices[f"{claim.claim[1]}/{request}" if len(claims) > 1 else request] = names
    return PlacementState(placement.node, devices)


def _claim_state(claim: ClaimOutcome) -> PlacementState:
    return PlacementState(claim.node, _devices_by_request(claim))


def _devices_by_request(claim: ClaimOutcome) -> DevicesByRequest:
    devices: dict[str, tuple[str, ...]] = {}
    for result in claim.results:
        devices[result["request"]] = (*devices.get(result["request"], ()), str(DeviceId.of(result)))
    return devices
