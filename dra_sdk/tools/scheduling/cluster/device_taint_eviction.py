"""Evicts pods that use a device with a taint of effect NoExecute.

As in the real controller, only tolerations that name the effect NoExecute count, and the shortest `tolerationSeconds`
decides. Time is not simulated: a pod that would be evicted later is evicted now, and the delay is reported.
Source: KEP-5055; controller/devicetainteviction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.claim_controller import claim_consumers, claim_results, is_finished, used_claims
from dra_sdk.tools.scheduling.cluster.core_v1 import Pod, pod_of
from dra_sdk.tools.scheduling.cluster.snapshot import ObjectKey, Snapshot, object_key

_NO_EXECUTE: Final = "NoExecute"
_DeviceKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Eviction:
    """Why a pod has to leave its node.

    node: the node.
    reason: which taint of which device.
    after_seconds: how long the tolerations of its claim keep it there.
    """

    node: str
    reason: str
    after_seconds: int = 0

    def __str__(self) -> str:
        return f"{self.reason}, after {self.after_seconds} s" if self.after_seconds else self.reason


@dataclass(frozen=True, slots=True)
class Evictions:
    """What has to be evicted.

    pods: the pods.
    hypothetical: the claims without a pod from which a pod would be evicted.
    """

    pods: Mapping[ObjectKey, Eviction] = field(default_factory=dict)
    hypothetical: Mapping[ObjectKey, Eviction] = field(default_factory=dict)


def find_evictions(snapshot: Snapshot) -> Evictions:
    """Return what has to be evicted from a snapshot."""
    if not snapshot.profile.enabled("DRADeviceTaints"):
        return Evictions()
    taints = _no_execute_taints(snapshot)
    if not taints.any:
        return Evictions()
    evicted = {}
    for obj in snapshot.pods:
        pod = pod_of(obj)
        if pod.spec.node_name and not is_finished(pod) and (eviction := _pod_eviction(pod, snapshot, taints)):
            evicted[object_key(obj)] = eviction
    hypothetical = {}
    for key, node in snapshot.hypothetical.items():
        if (claim := snapshot.claims_by_key.get(key)) and (eviction := _claim_eviction(claim, node, taints)):
            hypothetical[key] = eviction
    return Evictions(evicted, hypothetical)


@dataclass(slots=True)
class _NoExecuteTaints:
    """Taints with effect NoExecute, those of slices and those of rules."""

    published: dict[_DeviceKey, list[JSON]] = field(default_factory=lambda: defaultdict(list))
    rules: list[JSON] = field(default_factory=list)

    @property
    def any(self) -> bool:
        return bool(self.published or self.rules)

    def of(self, result: JSON) -> Iterator[JSON]:
        device = (result["driver"], result["pool"], result["device"])
        yield from self.published.get(device, ())
        for rule in self.rules:
            selector = rule["spec"].get("deviceSelector")
            wanted = ("driver", "pool", "device")
            if selector is not None and all(selector.get(part) in {None, result[part]} for part in wanted):
                yield rule["spec"]["taint"]


def _no_execute_taints(snapshot: Snapshot) -> _NoExecuteTaints:
    taints = _NoExecuteTaints()
    if snapshot.profile.applies_taint_rules:
        taints.rules = [rule for rule in snapshot.rules if rule["spec"]["taint"].get("effect") == _NO_EXECUTE]
    for spec in _newest_specs(snapshot.slices):
        for device in spec.get("devices") or ():
            for taint in device.get("taints") or ():
                if taint.get("effect") == _NO_EXECUTE:
                    taints.published[spec["driver"], spec["pool"]["name"], device["name"]].append(taint)
    return taints


def _newest_specs(slices: Iterable[JSON]) -> list[JSON]:
    """Return the specs of the slices of each pool's newest generation."""
    specs = [raw_slice["spec"] for raw_slice in slices]
    highest: dict[tuple[str, str], int] = {}
    for spec in specs:
        pool = spec["driver"], spec["pool"]["name"]
        highest[pool] = max(highest.get(pool, 0), spec["pool"].get("generation", 0))
    return [
        spec for spec in specs if spec["pool"].get("generation", 0) == highest[spec["driver"], spec["pool"]["name"]]
    ]


def _pod_eviction(pod: Pod, snapshot: Snapshot, taints: _NoExecuteTaints) -> Eviction | None:
    claims = (snapshot.claims_by_key.get(key) for key in used_claims(pod))
    return _soonest(
        _claim_eviction(claim, pod.spec.node_name, taints)
        for claim in claims
        if claim is not None and any(consumer.get("uid") == pod.metadata.uid for consumer in claim_consumers(claim))
    )


def _claim_eviction(claim: JSON, node: str, taints: _NoExecuteTaints) -> Eviction | None:
    return _soonest(
        _taint_eviction(taint, result, node) for result in claim_results(claim) for taint in taints.of(result)
    )


def _taint_eviction(taint: JSON, result: JSON, node: str) -> Eviction | None:
    given = result.get("tolerations") or ()
    tolerations = [toleration for toleration in given if _tolerates_no_execute(toleration, taint)]
    if any(toleration.get("tolerationSeconds") is None for toleration in tolerations):
        return None
    seconds = min((max(0, toleration["tolerationSeconds"]) for toleration in tolerations), default=0)
    name = f"{result['driver']}/{result['pool']}/{result['device']}"
    what = f"{taint['key']}={taint['value']}" if taint.get("value") else taint["key"]
    return Eviction(node, f"device {name} has taint {what}:{_NO_EXECUTE}", seconds)


def _soonest(evictions: Iterable[Eviction | None]) -> Eviction | None:
    return min(filter(None, evictions), key=lambda eviction: eviction.after_seconds, default=None)


def _tolerates_no_execute(toleration: JSON, taint: JSON) -> bool:
    if toleration.get("effect") != _NO_EXECUTE or toleration.get("key") not in {None, "", taint["key"]}:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return (toleration.get("value") or "") == (taint.get("value") or "")
