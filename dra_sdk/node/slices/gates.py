"""Which fields of a ResourceSlice need which feature gate, and what a server without it makes of a slice.

Such a server drops the fields silently, all of a gate at once. List attributes are the exception: it refuses them.
Pure. Source: resource.k8s.io/v1 field comments and the feature gates of Kubernetes 1.34 to 1.37.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.node.slices.diff import normal
from dra_sdk.wire.slice import is_list

UNKNOWN: Final = "unknown"
PARTITIONS: Final = "DRAPartitionableDevices"
TAINTS: Final = "DRADeviceTaints"
CONDITIONS: Final = "DRADeviceBindingConditions"
SHARES: Final = "DRAConsumableCapacity"
LISTS: Final = "DRAListTypeAttributes"
_RESOURCES: Final = "DRANodeAllocatableResources"
_SPEC_GATES: Final = {"perDeviceNodeSelection": PARTITIONS, "sharedCounters": PARTITIONS}
_DEVICE_GATES: Final = {
    "consumesCounters": PARTITIONS,
    "nodeName": PARTITIONS,
    "nodeSelector": PARTITIONS,
    "allNodes": PARTITIONS,
    "taints": TAINTS,
    "bindsToNode": CONDITIONS,
    "bindingConditions": CONDITIONS,
    "bindingFailureConditions": CONDITIONS,
    "allowMultipleAllocations": SHARES,
    "nodeAllocatableResourceMappings": _RESOURCES,
    "nodeAllocatableResources": _RESOURCES,
}
_PARTLY: Final = {"attributes": LISTS, "capacity": SHARES}  # fields of which each entry may lose something
DROPPING_GATES: Final = frozenset(_DEVICE_GATES.values())
"""The gates without which a server drops fields in place of refusing the slice."""


def gates_of(spec: JSON) -> set[str]:
    """Return the gates that a slice needs."""
    needed = {gate for field, gate in _SPEC_GATES.items() if spec.get(field)}
    for device in spec.get("devices", ()):
        needed |= {gate for field, gate in _DEVICE_GATES.items() if device.get(field)}
        if any("requestPolicy" in capacity for capacity in device.get("capacity", {}).values()):
            needed.add(SHARES)
        if any(map(is_list, device.get("attributes", {}).values())):
            needed.add(LISTS)
    return needed


def samples(specs: Sequence[JSON]) -> Iterator[int]:
    """Yield the indexes of few slices that need all gates that any of them needs and without which fields are lost."""
    seen: set[str] = set()
    for index, spec in enumerate(specs):
        if new := (gates_of(spec) & DROPPING_GATES) - seen:
            seen |= new
            yield index


def without_gates(spec: JSON, lost: Set[str]) -> JSON:
    """Return a slice as a server keeps it whose gates `lost` are off; the same object if that changes nothing."""
    if not gates_of(spec) & lost & DROPPING_GATES:
        return spec
    kept = {field: value for field, value in spec.items() if _SPEC_GATES.get(field) not in lost}
    if "devices" in kept:
        kept["devices"] = [_device_without(device, lost) for device in kept["devices"]]
    return kept


def _device_without(device: JSON, lost: Set[str]) -> JSON:
    kept = {field: value for field, value in device.items() if _DEVICE_GATES.get(field) not in lost}
    if SHARES in lost and "capacity" in kept:
        kept["capacity"] = {name: {"value": capacity["value"]} for name, capacity in kept["capacity"].items()}
    return kept


def dropped_fields(sent: JSON, stored: JSON) -> list[tuple[str, str]]:
    """Return each field of the sent spec that the stored one lacks, as (`device gpu-0: taints`, gate)."""
    sent, stored = normal(sent), normal(stored)
    dropped = [
        (key, _SPEC_GATES.get(key, UNKNOWN)) for key in sent if key not in {"devices", "pool"} and key not in stored
    ]
    kept = {device["name"]: device for device in stored.get("devices", ())}
    for device in sent.get("devices", ()):
        dropped += _of_device(device, kept.get(device["name"]))
    return dropped


def _of_device(sent: JSON, stored: JSON | None) -> list[tuple[str, str]]:
    where, gates = f"device {sent['name']}", {**_DEVICE_GATES, **_PARTLY}
    if stored is None:
        return [(where, UNKNOWN)]
    dropped = [(f"{where}: {key}", gates.get(key, UNKNOWN)) for key in sent if key not in stored]
    for key, gate in _PARTLY.items():
        kept = stored.get(key, {})
        for name, value in sent.get(key, {}).items() if kept else ():
            if name not in kept or set(value) - set(kept[name]):
                dropped.append((f"{where}: {key} {name}", gate))
    return dropped
