"""What if a node or a piece of hardware were lost? Each answer is another snapshot, to schedule and compare.

A lost device is in no slice any more. That is more than a taint: no toleration helps, and the parts of the hardware,
such as the partitions of a GPU, are lost with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import DeviceId
from dra_sdk.tools.scheduling.cluster.claim_controller import (
    claim_results,
    deallocated,
    is_finished,
    used_claims,
    with_recreated_pods,
    without_hypothetical_allocations,
)
from dra_sdk.tools.scheduling.cluster.core_v1 import pod_of
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot, device_entries, object_key, slices_by_pool
from dra_sdk.tools.scheduling.cluster.what_if import DeviceTarget, NodeTemplate, hypothetical_on, no_such_device

_BOUND_TO_NODE: Final = {"DaemonSet", "Node"}
"""Controllers whose pods end with their node: static pods belong to the Node."""
_HARDWARE: Final = ("resource.kubernetes.io/pciBusID", "pciBusID", "uuid", "parentUUID")
"""Attributes that are equal for the parts of one piece of hardware."""


def lose_node(snapshot: Snapshot, node: str) -> Snapshot:
    """Return the snapshot without a node, its devices, and its static pods and pods of DaemonSets.

    The other pods of the node are scheduled again, and what they alone used is free. WhatIfError if there is no such
    node.
    """
    template = NodeTemplate.of(snapshot, node)
    pods = [pod for obj in snapshot.pods if (pod := pod_of(obj)).spec.node_name == node]
    bound = [pod for pod in pods if {owner.kind for owner in pod.metadata.owner_references or ()} & _BOUND_TO_NODE]
    left = with_recreated_pods(snapshot, [pod for pod in pods if not is_finished(pod)])
    deleted = {(pod.metadata.namespace, pod.metadata.name) for pod in bound}
    left = left.without("Pod", *deleted).without("Node", ("", node))
    left = without_hypothetical_allocations(left, hypothetical_on(snapshot, node))
    lost = {key for raw_slice in template.slices for key, _ in device_entries(raw_slice)}
    return _without_devices(left, lost)


def lose_hardware(snapshot: Snapshot, target: DeviceTarget) -> Snapshot:
    """Return the snapshot without the selected devices and all parts of the same hardware; pods with them start again.

    Parts of the same hardware are devices of a pool that consume a counter set in common, or that have the same PCI
    address or UUID. WhatIfError if there are no such devices.
    """
    lost: set[DeviceId] = set()
    for pool in slices_by_pool(snapshot.slices).values():
        devices = {key: device for raw_slice in pool for key, device in device_entries(raw_slice)}
        chosen = {key for key in devices if target.selects(key)}
        marks = {mark for key in chosen for mark in hardware_marks(devices[key])}
        lost |= chosen | {key for key, device in devices.items() if marks & set(hardware_marks(device))}
    if not lost:
        raise no_such_device(snapshot, target)
    held = {object_key(claim) for claim in snapshot.claims if _held(claim) & lost}
    hit = [pod for obj in snapshot.pods if set(used_claims(pod := pod_of(obj))) & held]
    left = with_recreated_pods(snapshot, [pod for pod in hit if not is_finished(pod)])
    left = without_hypothetical_allocations(left, [key for key in snapshot.hypothetical if key in held])
    return _without_devices(left, lost)


def _without_devices(snapshot: Snapshot, lost: set[DeviceId]) -> Snapshot:
    """Remove devices from the slices; claims that hold one and that no pod uses are allocated again."""
    slices = tuple(_without(raw_slice, lost) for raw_slice in snapshot.slices)
    claims = tuple(deallocated(claim) if _held(claim) & lost else claim for claim in snapshot.claims)
    return replace(snapshot, slices=slices, claims=claims)


def _without(raw_slice: JSON, lost: set[DeviceId]) -> JSON:
    devices = device_entries(raw_slice)
    kept = [device for key, device in devices if key not in lost]
    if len(kept) == len(devices):
        return raw_slice
    return raw_slice | {"spec": raw_slice["spec"] | {"devices": kept}}


def _held(claim: JSON) -> set[DeviceId]:
    return set(map(DeviceId.of, claim_results(claim)))


def hardware_marks(device: JSON) -> Iterator[tuple[str, str]]:
    """Yield what a device has in common with the other parts of its hardware: the kind of mark, and its value."""
    for consumption in device.get("consumesCounters") or ():
        yield "counterSet", str(consumption["counterSet"])
    for name, value in (device.get("attributes") or {}).items():
        if name.endswith(_HARDWARE) and "string" in value:
            yield "uuid" if name.lower().endswith("uuid") else "pciBusID", str(value["string"])
