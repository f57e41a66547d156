"""Pods that have to go because a device of theirs has a taint with effect NoExecute.

Source: KEP-5055; controller/devicetainteviction. As there, only tolerations that name the effect NoExecute count, and
the shortest `tolerationSeconds` of several decides. Time is not simulated: who has to go later goes now, and it is said
after how many seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.claims import is_finished, used_claims
from dra_sdk.tools.scheduling.cluster.core import Pod
from dra_sdk.tools.scheduling.cluster.names import Key, key_of
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot

_NO_EXECUTE: Final = "NoExecute"
_Device = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Eviction:
    """Why a pod had to leave its node: a sentence, and how long its tolerations would have kept it there."""

    node: str
    reason: str
    after_seconds: int = 0

    def __str__(self) -> str:
        return f"{self.reason}, after {self.after_seconds} s" if self.after_seconds else self.reason


@dataclass(frozen=True, slots=True)
class Evicted:
    """The pods that have to go, and the claims without a pod whose devices would be taken from one."""

    pods: Mapping[Key, Eviction] = field(default_factory=dict)
    imagined: Mapping[Key, Eviction] = field(default_factory=dict)


def evictions(snapshot: Snapshot) -> Evicted:
    """Who has to go."""
    if not snapshot.profile.enabled("DRADeviceTaints"):
        return Evicted()
    taints = _taints(snapshot)
    if not taints.any:
        return Evicted()
    evicted = {}
    for obj in snapshot.pods:
        pod = Pod.model_validate(obj)
        if pod.spec.node_name and not is_finished(pod) and (found := _of_pod(pod, snapshot, taints)):
            evicted[key_of(obj)] = found
    imagined = {}
    for key, node in snapshot.imagined.items():
        if (claim := snapshot.claims_by_key.get(key)) and (found := _of_claim(claim, node, taints)):
            imagined[key] = found
    return Evicted(evicted, imagined)


@dataclass(slots=True)
class _Taints:
    """Taints with effect NoExecute: what drivers published, and rules."""

    published: dict[_Device, list[JSON]] = field(default_factory=lambda: defaultdict(list))
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
            if selector is not None and all(selector.get(each) in {None, result[each]} for each in wanted):
                yield rule["spec"]["taint"]


def _taints(snapshot: Snapshot) -> _Taints:
    found = _Taints()
    if snapshot.profile.applies_taint_rules:
        found.rules = [each for each in snapshot.rules if each["spec"]["taint"].get("effect") == _NO_EXECUTE]
    for spec in _current(snapshot.slices):
        for device in spec.get("devices") or ():
            for taint in device.get("taints") or ():
                if taint.get("effect") == _NO_EXECUTE:
                    found.published[spec["driver"], spec["pool"]["name"], device["name"]].append(taint)
    return found


def _current(slices: Iterable[JSON]) -> list[JSON]:
    """The specs of those slices that have the highest generation of their pool."""
    specs = [each["spec"] for each in slices]
    highest: dict[tuple[str, str], int] = {}
    for spec in specs:
        pool = spec["driver"], spec["pool"]["name"]
        highest[pool] = max(highest.get(pool, 0), spec["pool"].get("generation", 0))
    return [
        each for each in specs if each["pool"].get("generation", 0) == highest[each["driver"], each["pool"]["name"]]
    ]


def _of_pod(pod: Pod, snapshot: Snapshot, taints: _Taints) -> Eviction | None:
    found = []
    for key in used_claims(pod):
        claim = snapshot.claims_by_key.get(key)
        reserved = ((claim or {}).get("status") or {}).get("reservedFor") or ()
        if claim is not None and any(each.get("uid") == pod.metadata.uid for each in reserved):
            found.append(_of_claim(claim, pod.spec.node_name, taints))
    return _soonest(found)


def _of_claim(claim: JSON, node: str, taints: _Taints) -> Eviction | None:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return _soonest(_of_taint(taint, result, node) for result in results for taint in taints.of(result))


def _of_taint(taint: JSON, result: JSON, node: str) -> Eviction | None:
    tolerations = [each for each in result.get("tolerations") or () if _tolerates(each, taint)]
    if any(each.get("tolerationSeconds") is None for each in tolerations):
        return None
    seconds = min((max(0, each["tolerationSeconds"]) for each in tolerations), default=0)
    name = f"{result['driver']}/{result['pool']}/{result['device']}"
    what = f"{taint['key']}={taint['value']}" if taint.get("value") else taint["key"]
    return Eviction(node, f"device {name} has taint {what}:{_NO_EXECUTE}", seconds)


def _soonest(found: Iterable[Eviction | None]) -> Eviction | None:
    return min((each for each in found if each is not None), key=lambda each: each.after_seconds, default=None)


def _tolerates(toleration: JSON, taint: JSON) -> bool:
    if toleration.get("effect") != _NO_EXECUTE or toleration.get("key") not in {None, "", taint["key"]}:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return (toleration.get("value") or "") == (taint.get("value") or "")
