"""What if a device were tainted, or a node drained: another snapshot, to be scheduled and compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.claims import is_finished, without_imagined, without_pods
from dra_sdk.tools.scheduling.cluster.core import Pod
from dra_sdk.tools.scheduling.cluster.names import Key
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot
from dra_sdk.tools.scheduling.cluster.templates import WhatIfError
from dra_sdk.wire.profile import ServerProfile


@dataclass(frozen=True, slots=True)
class Target:
    """Devices by driver, pool and name; None takes all."""

    driver: str
    pool: str | None = None
    device: str | None = None

    def __str__(self) -> str:
        return "/".join(each or "*" for each in (self.driver, self.pool, self.device))

    def covers(self, spec: JSON, device: JSON) -> bool:
        """Whether a device of a slice with this spec is meant."""
        is_pool = spec["driver"] == self.driver and self.pool in {None, spec["pool"]["name"]}
        return is_pool and self.device in {None, device["name"]}


def add_taint(snapshot: Snapshot, target: Target, taint: JSON) -> Snapshot:
    """With a taint (`key`, `value`, `effect`) on these devices, as if their driver had published it.

    WhatIfError if there are none, or if a cluster of this version would not look at taints.
    """
    _need_taints(snapshot.profile)
    slices = tuple(_tainted(each, target, taint) for each in snapshot.slices)
    if slices == snapshot.slices:
        specs = [each["spec"] for each in snapshot.slices]
        if any(target.covers(spec, device) for spec in specs for device in spec.get("devices") or ()):
            raise WhatIfError(f"each device {target} has this taint already")
        drivers = ", ".join(sorted({spec["driver"] for spec in specs})) or "none"
        raise WhatIfError(f"there is no device {target}; drivers with devices are: {drivers}")
    return replace(snapshot, slices=slices)


def drain(snapshot: Snapshot, node: str) -> Snapshot:
    """With the node cordoned and its pods waiting for another, but for those of DaemonSets and static ones.

    WhatIfError if there is no such node.
    """
    obj = snapshot.nodes_by_name.get(node)
    if obj is None:
        raise WhatIfError(f"there is no node {node}; nodes are: {', '.join(snapshot.nodes_by_name) or 'none'}")
    cordoned = obj | {"spec": (obj.get("spec") or {}) | {"unschedulable": True}}
    changed = without_pods(snapshot.having([cordoned]), _leaving(snapshot, node))
    return without_imagined(changed, _imagined_on(snapshot, node))


def _need_taints(profile: ServerProfile) -> None:
    if not profile.enabled("DRADeviceTaints"):
        gate = f"feature gate DRADeviceTaints is off in Kubernetes {profile.version}"
        raise WhatIfError(f"a taint on a device would have no effect: {gate}")


def _tainted(each: JSON, target: Target, taint: JSON) -> JSON:
    spec = each["spec"]
    devices = [
        _with_taint(device, taint) if target.covers(spec, device) else device for device in spec.get("devices") or ()
    ]
    return each | {"spec": spec | {"devices": devices}} if devices else each


def _with_taint(device: JSON, taint: JSON) -> JSON:
    """A device has at most one taint of a key and an effect."""
    same = (taint["key"], taint["effect"])
    others = [each for each in device.get("taints") or () if (each["key"], each["effect"]) != same]
    return device | {"taints": [*others, taint]}


def _leaving(snapshot: Snapshot, node: str) -> Iterator[Pod]:
    for each in snapshot.pods:
        pod = Pod.model_validate(each)
        owners = {owner.kind for owner in pod.metadata.owner_references or ()}
        if pod.spec.node_name == node and not is_finished(pod) and not owners & {"DaemonSet", "Node"}:
            yield pod


def _imagined_on(snapshot: Snapshot, node: str) -> list[Key]:
    return [key for key, where in snapshot.imagined.items() if where == node]
