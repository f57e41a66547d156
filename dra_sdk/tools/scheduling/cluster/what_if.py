"""What if nodes were added, devices tainted or nodes drained? Each answer is another snapshot, to schedule and compare.

`suggest_nodes` finds out whether more nodes would help, by trying copies of each kind of node.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

from dra_sdk.errors import DraError
from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import DeviceId
from dra_sdk.tools.scheduling.allocator.node_selection import matches_node_selector
from dra_sdk.tools.scheduling.cluster.claim_controller import (
    is_finished,
    with_recreated_pods,
    without_hypothetical_allocations,
)
from dra_sdk.tools.scheduling.cluster.core_v1 import Pod, pod_of
from dra_sdk.tools.scheduling.cluster.node_filter import UNSCHEDULABLE_TAINT
from dra_sdk.tools.scheduling.cluster.scheduling_cycle import schedule
from dra_sdk.tools.scheduling.cluster.scheduling_outcome import SchedulingOutcome
from dra_sdk.tools.scheduling.cluster.snapshot import (
    FIELD_OF_KIND,
    HOSTNAME_LABEL,
    Count,
    ObjectKey,
    Snapshot,
    device_entries,
    generated_uid,
    newest_generation,
    no_count,
    object_key,
    slices_by_pool,
    unused_name,
)

_IDENTITY_ATTRIBUTES: Final = ("uuid", "pciBusID", "pcieRoot", "serial", "index", "minor")
"""Attributes that identify a single device and say nothing about what it can do."""
_MAX_NODES: Final = 64
_MAX_STEPS: Final = 100_000
"""The largest number of steps of a search; fewer than usual, because several clusters are tried."""


class WhatIfError(DraError):
    """A change refers to something that does not exist, or cannot have an effect."""


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """A node and its slices, to be copied under other names.

    Attributes are copied unchanged, serial numbers and PCI addresses included. Devices that other nodes can use are not
    copied.

    node: the node.
    slices: the slices, or the parts of slices, that only this node can use.
    """

    node: JSON
    slices: tuple[JSON, ...]

    @classmethod
    def of(cls, snapshot: Snapshot, name: str) -> NodeTemplate:
        """Return the template of a node of the snapshot; WhatIfError if there is no such node."""
        node = _existing_node(snapshot, name)
        return cls(node, tuple(_slices_of(_PoolsByNode(snapshot.slices).of(name), node)))

    @classmethod
    def every(cls, snapshot: Snapshot) -> Iterator[NodeTemplate]:
        """Yield the template of each node."""
        pools = _PoolsByNode(snapshot.slices)
        for name, node in snapshot.nodes_by_name.items():
            yield cls(node, tuple(_slices_of(pools.of(name), node)))

    @property
    def name(self) -> str:
        """The name of the node."""
        return str(self.node["metadata"]["name"])

    @property
    def signature(self) -> str:
        """Text that is equal for nodes of the same kind: with equal labels, taints, size and kinds of devices."""
        metadata = self.node["metadata"]
        labels = {key: value for key, value in (metadata.get("labels") or {}).items() if value != self.name}
        spec = [(self.node.get("spec") or {}).get("taints"), (self.node.get("status") or {}).get("allocatable")]
        texts: dict[tuple[str, int, int], str] = {}
        devices = []
        for raw_slice in self.slices:
            for device in _devices(raw_slice):
                # Parts of a device that are one object in memory are written once.
                key = (raw_slice["spec"]["driver"], id(device.get("attributes")), id(device.get("capacity")))
                if key not in texts:
                    texts[key] = json.dumps([key[0], _without_identity(device)], sort_keys=True)
                devices.append(texts[key])
        return f"{json.dumps([labels, spec], sort_keys=True)} {' '.join(devices)}"

    def copies(self, name: str) -> Iterator[JSON]:
        """Yield the objects of another such node."""
        yield _renamed_node(self.node, name)
        names: set[str] = set()
        for raw_slice in self.slices:
            copied = _renamed_slice(raw_slice, self.name, name, names)
            names.add(copied["metadata"]["name"])
            yield copied


def _existing_node(snapshot: Snapshot, name: str) -> JSON:
    node = snapshot.nodes_by_name.get(name)
    if node is None:
        raise WhatIfError(f"there is no node {name}; nodes are: {', '.join(snapshot.nodes_by_name) or 'none'}")
    return node


def add_nodes(snapshot: Snapshot, template: NodeTemplate, names: Iterable[str]) -> Snapshot:
    """Return the snapshot with more nodes; WhatIfError if a name is already used."""
    known = set(snapshot.nodes_by_name)
    added: list[JSON] = []
    for name in names:
        if name in known:
            raise WhatIfError(f"node {name} already exists")
        known.add(name)
        added += template.copies(name)
    return snapshot.with_objects(added)


def free_node_names(snapshot: Snapshot, like: str, count: int) -> list[str]:
    """Return unused names for more nodes."""
    candidates = (f"{like}-new-{number}" for number in range(1, count + len(snapshot.nodes) + 1))
    return [candidate for candidate in candidates if candidate not in snapshot.nodes_by_name][:count]


def _devices(raw_slice: JSON) -> list[JSON]:
    return raw_slice["spec"].get("devices") or []


def _without_identity(device: JSON) -> JSON:
    attributes = device.get("attributes") or {}
    kept = {
        key: value for key, value in attributes.items() if not key.rpartition("/")[2].endswith(_IDENTITY_ATTRIBUTES)
    }
    return {"attributes": kept, "capacity": device.get("capacity")}


class _PoolsByNode:
    """The slices of each pool, and which pools no other node than one can use."""

    def __init__(self, slices: Iterable[JSON]) -> None:
        self._pools = list(slices_by_pool(slices).values())
        self._own: dict[str, list[int]] = {}
        self._others: list[int] = []
        for index, pool in enumerate(self._pools):
            name = _only_node(pool)
            (self._others if name is None else self._own.setdefault(name, [])).append(index)

    def of(self, node: str) -> Iterator[list[JSON]]:
        """Yield the pools of which a node may use something, in their order."""
        for index in sorted([*self._own.get(node, ()), *self._others]):
            yield self._pools[index]


def _only_node(pool: Iterable[JSON]) -> str | None:
    """Return the node that all slices of a pool name; None if one of them names another or selects nodes otherwise."""
    names = set()
    for spec in (raw_slice["spec"] for raw_slice in pool):
        if spec.get("perDeviceNodeSelection") or spec.get("nodeSelector") or not spec.get("nodeName"):
            return None
        names.add(str(spec["nodeName"]))
    return names.pop() if len(names) == 1 else None


def _slices_of(pools: Iterable[list[JSON]], node: JSON) -> Iterator[JSON]:
    """Yield what has to be copied of each pool, with the number of slices of the copied pool."""
    for pool in pools:
        current = newest_generation(pool)
        own = [part for raw_slice in current if (part := _part_of_node(raw_slice, node)) is not None]
        if not any(_devices(raw_slice) for raw_slice in own):
            continue
        missing = current[0]["spec"]["pool"].get("resourceSliceCount", 1) - len(current)
        for raw_slice in own:
            pool_of_copy = raw_slice["spec"]["pool"] | {"resourceSliceCount": len(own) + missing}
            yield raw_slice | {"spec": raw_slice["spec"] | {"pool": pool_of_copy}}


def _part_of_node(raw_slice: JSON, node: JSON) -> JSON | None:
    """Return the slice, or its devices, that only this node can use; slices with counter sets are needed with them."""
    spec, name = raw_slice["spec"], node["metadata"]["name"]
    if spec.get("perDeviceNodeSelection"):
        devices = [device for device in _devices(raw_slice) if _is_only_for(device, node)]
        return raw_slice | {"spec": spec | {"devices": devices}} if devices or spec.get("sharedCounters") else None
    if _is_only_for(spec, node) or (spec.get("sharedCounters") and spec.get("nodeName") in {None, name}):
        return raw_slice
    return None


def _is_only_for(scope: Mapping[str, Any], node: JSON) -> bool:
    name = node["metadata"]["name"]
    if selector := scope.get("nodeSelector"):
        return matches_node_selector(selector, node) and not matches_node_selector(
            selector, _renamed_node(node, f"{name}-other")
        )
    return bool(scope.get("nodeName") == name)


def _renamed_node(node: JSON, name: str) -> JSON:
    old = node["metadata"]["name"]
    labels = {key: name if value == old else value for key, value in (node["metadata"].get("labels") or {}).items()}
    metadata: JSON = {"name": name, "uid": generated_uid("Node", ("", name)), "labels": {HOSTNAME_LABEL: name} | labels}
    spec = {key: value for key, value in (node.get("spec") or {}).items() if key not in {"unschedulable", "providerID"}}
    spec["taints"] = [taint for taint in spec.get("taints") or () if taint.get("key") != UNSCHEDULABLE_TAINT["key"]]
    status = {key: value for key, value in (node.get("status") or {}).items() if key == "allocatable"}
    return node | {"metadata": metadata, "spec": spec, "status": status}


def _renamed_slice(raw_slice: JSON, old: str, new: str, names: Container[str]) -> JSON:
    spec = raw_slice["spec"]
    pool = str(spec["pool"]["name"])
    pool = pool.replace(old, new) if old in pool else f"{pool}-{new}"
    changed = _renamed_scope(spec, old, new) | {"pool": spec["pool"] | {"name": pool}}
    devices = _devices(raw_slice)
    if any("nodeSelector" in device or device.get("nodeName") == old for device in devices):
        changed["devices"] = [_renamed_scope(device, old, new) for device in devices]
    name = unused_name(f"{new}-", names.__contains__, raw_slice["metadata"]["name"])
    metadata = {"name": name, "uid": generated_uid("ResourceSlice", ("", name))}
    return raw_slice | {"metadata": metadata, "spec": changed}


def _renamed_scope(scope: JSON, old: str, new: str) -> JSON:
    """Return a slice's spec or a device with the node's name replaced where it selects nodes."""
    changed = dict(scope)
    if scope.get("nodeName") == old:
        changed["nodeName"] = new
    if selector := scope.get("nodeSelector"):
        changed["nodeSelector"] = _renamed_values(selector, old, new)
    return changed


def _renamed_values(value: Any, old: str, new: str) -> Any:
    if isinstance(value, dict):
        return {key: _renamed_values(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed_values(item, old, new) for item in value]
    return new if value == old else value


@dataclass(frozen=True, slots=True)
class DeviceTarget:
    """The devices of a change, selected as by the DeviceTaintSelector of the API.

    driver: the driver.
    pool: the pool; None for all pools.
    device: the device; None for all devices.
    """

    driver: str
    pool: str | None = None
    device: str | None = None

    def __str__(self) -> str:
        return "/".join(part or "*" for part in (self.driver, self.pool, self.device))

    def selects(self, device: DeviceId) -> bool:
        """Return whether it selects a device."""
        is_pool = device.driver == self.driver and self.pool in {None, device.pool}
        return is_pool and self.device in {None, device.device}


def no_such_device(snapshot: Snapshot, target: DeviceTarget) -> WhatIfError:
    """Return the error for a target that selects no device."""
    drivers = ", ".join(sorted({raw_slice["spec"]["driver"] for raw_slice in snapshot.slices})) or "none"
    return WhatIfError(f"there is no device {target}; drivers with devices are: {drivers}")


def add_taint(snapshot: Snapshot, target: DeviceTarget, taint: JSON) -> Snapshot:
    """Return the snapshot with a taint (`key`, `value`, `effect`) on these devices, as if their driver published it.

    WhatIfError if there are no such devices, or if a cluster of this version would ignore the taint.
    """
    if not snapshot.profile.enabled("DRADeviceTaints"):
        gate = f"feature gate DRADeviceTaints is off in Kubernetes {snapshot.profile.version}"
        raise WhatIfError(f"a taint on a device would have no effect: {gate}")
    slices = tuple(_with_device_taints(raw_slice, target, taint) for raw_slice in snapshot.slices)
    if slices == snapshot.slices:
        if any(target.selects(key) for raw_slice in snapshot.slices for key, _ in device_entries(raw_slice)):
            raise WhatIfError(f"each device {target} already has this taint")
        raise no_such_device(snapshot, target)
    return replace(snapshot, slices=slices)


def drain(snapshot: Snapshot, node: str) -> Snapshot:
    """Return the snapshot with the node cordoned and its pods evicted, except those of DaemonSets and static pods.

    WhatIfError if there is no such node.
    """
    obj = _existing_node(snapshot, node)
    cordoned = obj | {"spec": (obj.get("spec") or {}) | {"unschedulable": True}}
    changed = with_recreated_pods(snapshot.with_objects([cordoned]), pods_to_evict(snapshot, node))
    return without_hypothetical_allocations(changed, hypothetical_on(snapshot, node))


def _with_device_taints(raw_slice: JSON, target: DeviceTarget, taint: JSON) -> JSON:
    devices = [
        _with_taint(device, taint) if target.selects(key) else device for key, device in device_entries(raw_slice)
    ]
    return raw_slice | {"spec": raw_slice["spec"] | {"devices": devices}} if devices else raw_slice


def _with_taint(device: JSON, taint: JSON) -> JSON:
    """Return the device with the taint in place of one with the same key and effect."""
    same = (taint["key"], taint["effect"])
    others = [other for other in device.get("taints") or () if (other["key"], other["effect"]) != same]
    return device | {"taints": [*others, taint]}


def pods_to_evict(snapshot: Snapshot, node: str) -> Iterator[Pod]:
    """Yield the pods that a drain of a node evicts: not those of DaemonSets, and no static ones."""
    for obj in snapshot.pods:
        pod = pod_of(obj)
        owners = {owner.kind for owner in pod.metadata.owner_references or ()}
        if pod.spec.node_name == node and not is_finished(pod) and not owners & {"DaemonSet", "Node"}:
            yield pod


def hypothetical_on(snapshot: Snapshot, node: str) -> list[ObjectKey]:
    """Return the claims without a pod that were allocated on a node."""
    return [key for key, where in snapshot.hypothetical.items() if where == node]


@dataclass(frozen=True, slots=True)
class NodeSuggestion:
    """What more nodes of one kind would change.

    like: the node to copy.
    nodes: how many copies are needed.
    placed: the pods and claims that they would satisfy.
    left: the pods and claims that would still be unsatisfied.
    """

    like: str
    nodes: int
    placed: tuple[ObjectKey, ...]
    left: tuple[ObjectKey, ...]


def suggest_nodes(
    outcome: SchedulingOutcome, original: Snapshot | None = None, count: Count = no_count
) -> list[NodeSuggestion]:
    """Return what more nodes of each kind would change, the best first; empty if nothing helps or nothing is missing.

    The kinds are those of the nodes in `original`, by default the snapshot of the outcome. Up to 64 nodes are tried.
    `count` is called with how many kinds were tried.
    """
    unsatisfied = _unsatisfied(outcome)
    if not unsatisfied:
        return []
    suggestions = []
    for index, template in enumerate(_node_kinds(original or outcome.snapshot)):
        count(index, 0)
        suggestions.append(_suggestion(outcome, template, unsatisfied))
    helpful = [suggestion for suggestion in suggestions if suggestion.placed]
    return sorted(helpful, key=lambda suggestion: (-len(suggestion.placed), suggestion.nodes))


def _unsatisfied(outcome: SchedulingOutcome) -> tuple[ObjectKey, ...]:
    return (*(placement.pod for placement in outcome.unplaced), *(claim.claim for claim in outcome.unallocated))


def _node_kinds(snapshot: Snapshot) -> Iterator[NodeTemplate]:
    """Yield one node of each kind."""
    seen = set()
    for template in NodeTemplate.every(snapshot):
        if template.signature not in seen:
            seen.add(template.signature)
            yield template


def _suggestion(
    outcome: SchedulingOutcome, template: NodeTemplate, unsatisfied: tuple[ObjectKey, ...]
) -> NodeSuggestion:
    """Try one more node; if it helps some, try as many as the rest would need at that rate."""
    suggestion = _try_nodes(outcome, template, unsatisfied, 1)
    if suggestion.placed and suggestion.left:
        count = min(_MAX_NODES, ceil(len(unsatisfied) / len(suggestion.placed)))
        suggestion = _try_nodes(outcome, template, unsatisfied, count)
    return suggestion


def _try_nodes(
    outcome: SchedulingOutcome, template: NodeTemplate, unsatisfied: tuple[ObjectKey, ...], count: int
) -> NodeSuggestion:
    names = free_node_names(outcome.snapshot, template.name, count)
    after = schedule(add_nodes(outcome.snapshot, template, names), _MAX_STEPS)
    left = _unsatisfied(after)
    placed = tuple(key for key in unsatisfied if key not in left)
    used = {after.pods_by_key[key].node if key in after.pods_by_key else None for key in placed}
    used |= {after.claims_by_key[key].node for key in placed if key in after.claims_by_key}
    return NodeSuggestion(
        template.name, len(used & set(names)), placed, tuple(key for key in unsatisfied if key in left)
    )


def replaced(snapshot: Snapshot, objects: Snapshot) -> Snapshot:
    """Return the snapshot with these objects in place of those of the same kind, namespace and name."""
    added = [obj for name in FIELD_OF_KIND.values() for obj in getattr(objects, name)]
    changed: list[ObjectKey] = [object_key(pod) for pod in objects.pods]
    removed = [pod_of(obj) for obj in snapshot.pods if object_key(obj) in changed]
    return with_recreated_pods(snapshot, removed).with_objects(added)
