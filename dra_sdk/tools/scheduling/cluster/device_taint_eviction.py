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
from dra_sdk.tools.scheduling.allocator import DeviceId
from dra_sdk.tools.scheduling.cluster.claim_controller import claim_results, is_finished, is_reserved_for, used_claims
from dra_sdk.tools.scheduling.cluster.core_v1 import Pod, pod_of
from dra_sdk.tools.scheduling.cluster.snapshot import (
    ObjectKey,
    Snapshot,
    newest_generation,
    object_key,
    slices_by_pool,
)
from dra_sdk.tools.scheduling.device_taints import taint_text, tolerates

_NO_EXECUTE: Final = "NoExecute"


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

    published: dict[DeviceId, list[JSON]] = field(default_factory=lambda: defaultdict(list))
    rules: list[JSON] = field(default_factory=list)

    @property
    def any(self) -> bool:
        return bool(self.published or self.rules)

    def of(self, result: JSON) -> Iterator[JSON]:
        yield from self.published.get(DeviceId.of(result), ())
        for rule in self.rules:
            selector = rule["spec"].get("deviceSelector")
            wanted = ("driver", "pool", "device")
            if selector is not None and all(selector.get(part) in {None, result[part]} for part in wanted):
                yield rule["spec"]["taint"]


def _no_execute_taints(snapshot: Snapshot) -> _NoExecuteTaints:
    taints = _NoExecuteTaints()
    if snapshot.profile.applies_taint_rules:
        taints.rules = [rule for rule in snapshot.rules if rule["spec"]["taint"].get("effect") == _NO_EXECUTE]
    for pool, slices in slices_by_pool(snapshot.slices).items():
        for raw_slice in newest_generation(slices):
            for device in raw_slice["spec"].get("devices") or ():
                for taint in device.get("taints") or ():
                    if taint.get("effect") == _NO_EXECUTE:
                        taints.published[DeviceId(*pool, device["name"])].append(taint)
    return taints


def _pod_eviction(pod: Pod, snapshot: Snapshot, taints: _NoExecuteTaints) -> Eviction | None:
    claims = (snapshot.claims_by_key.get(key) for key in used_claims(pod))
    return _soonest(
        _claim_eviction(claim, pod.spec.node_name, taints)
        for claim in claims
        if claim is not None and is_reserved_for(claim, pod)
    )


def _claim_eviction(claim: JSON, node: str, taints: _NoExecuteTaints) -> Eviction | None:
    return _soonest(
        _taint_eviction(taint, result, node) for result in claim_results(claim) for taint in taints.of(result)
    )


def _taint_eviction(taint: JSON, result: JSON, node: str) -> Eviction | None:
    given = [toleration for toleration in result.get("tolerations") or () if toleration.get("effect") == _NO_EXECUTE]
    tolerations = [toleration for toleration in given if tolerates(toleration, taint)]
    if any(toleration.get("tolerationSeconds") is None for toleration in tolerations):
        return None
    seconds = min((max(0, toleration["tolerationSeconds"]) for toleration in tolerations), default=0)
    return Eviction(node, f"device {DeviceId.of(result)} has taint {taint_text(taint)}", seconds)


def _soonest(evictions: Iterable[Eviction | None]) -> Eviction | None:
    return min(filter(None, evictions), key=lambda eviction: eviction.after_seconds, default=None)
