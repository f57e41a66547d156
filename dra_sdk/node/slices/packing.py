"""Slices as a certain release of Kubernetes needs them.

1.34 needs counter sets in the slice of the devices that use them: it refuses a device whose counter set is in another
slice, and its scheduler counts slice by slice. From 1.35 on a slice has either devices or counter sets, which is the
form that `plan` makes. From 1.37 on, node allocatable resources (KEP-5517) have the form `nodeAllocatableResources`.

Pure. Source: resource.k8s.io/v1 ResourceSliceSpec of 1.34 and 1.35; NodeAllocatableResourceMapping of 1.36,
NodeAllocatableResource of 1.37.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.wire.profile import COUNTERS_PER_SLICE_1_34, DEVICE_COUNTERS_PER_SLICE_1_34, OLDEST, ServerProfile

_DEVICES: Final = ServerProfile.of(f"1.{OLDEST}").limits.devices_per_slice
NEEDED_BY_1_34: Final = (
    "1.34 needs counter sets in one slice with the devices that use them, "
    f"at most {COUNTERS_PER_SLICE_1_34} counters and {_DEVICES} devices"
)


_MAPPINGS: Final = "nodeAllocatableResourceMappings"
_FIRST_WITH_RESOURCES: Final = 37


def has_counters(slices: Sequence[JSON]) -> bool:
    """Return whether the slices have counter sets."""
    return any("sharedCounters" in spec for spec in slices)


def depends_on_release(slices: Sequence[JSON]) -> bool:
    """Return whether it matters which release the slices are for."""
    return has_counters(slices) or any(_MAPPINGS in device for spec in slices for device in spec.get("devices", ()))


def for_release(slices: Sequence[JSON], minor: int) -> list[JSON]:
    """Return planned slices as a server of 1.`minor` accepts them."""
    if minor < _FIRST_WITH_RESOURCES:
        return pack_for_1_34(slices, minor)
    return [
        {**spec, "devices": [_with_resources(device) for device in spec["devices"]]} if "devices" in spec else spec
        for spec in slices
    ]


def _with_resources(device: JSON) -> JSON:
    """Return a device with the form of 1.37 of its node allocatable resources."""
    if _MAPPINGS not in device:
        return device
    resources = {name: {"mapping": _mapping(mapping)} for name, mapping in device[_MAPPINGS].items()}
    kept = {key: value for key, value in device.items() if key != _MAPPINGS}
    return {**kept, "nodeAllocatableResources": resources}


def _mapping(mapping: JSON) -> JSON:
    amount = mapping["allocationMultiplier"]
    if "capacityKey" in mapping:
        return {"capacityKey": mapping["capacityKey"], "capacityMultiplier": amount}
    return {"deviceMultiplier": amount}


def pack_for_1_34(slices: Sequence[JSON], minor: int) -> list[JSON]:
    """Return planned slices as a server of 1.`minor` accepts them. Only 1.34 needs a change.

    The order of devices stays, except that devices with counter sets in common move up to the first of them. If these
    are too many for one slice, all slices stay as planned: with the feature off, as by default, 1.34 accepts them and
    drops the counters.
    """
    if minor > OLDEST or not has_counters(slices):
        return list(slices)
    nodes = {key: value for key, value in slices[0].items() if key not in {"devices", "sharedCounters"}}
    packed: list[_SliceContent] = []
    for group in _groups(slices):
        if not group.fits():
            return list(slices)
        if packed and packed[-1].joined(group).fits():
            packed[-1] = packed[-1].joined(group)
        else:
            packed.append(group)
    return [{**nodes, **part.json()} for part in packed]


def split_devices(slices: Sequence[JSON]) -> list[str]:
    """Return the devices whose counter set is in another slice, which 1.34 refuses."""
    return [
        device["name"]
        for spec in slices
        for device in spec.get("devices", ())
        if not {counter_set["name"] for counter_set in spec.get("sharedCounters", ())}.issuperset(_used(device))
    ]


@dataclass(frozen=True, slots=True)
class _SliceContent:
    """Counter sets and devices that go into one slice."""

    sets: list[JSON] = field(default_factory=list)
    devices: list[JSON] = field(default_factory=list)

    def joined(self, other: _SliceContent) -> _SliceContent:
        return _SliceContent(self.sets + other.sets, self.devices + other.devices)

    def fits(self) -> bool:
        used = sum(len(used["counters"]) for device in self.devices for used in device.get("consumesCounters", ()))
        return (
            sum(len(counter_set["counters"]) for counter_set in self.sets) <= COUNTERS_PER_SLICE_1_34
            and len(self.devices) <= _DEVICES
            and used <= DEVICE_COUNTERS_PER_SLICE_1_34
        )

    def json(self) -> JSON:
        parts = {"sharedCounters": self.sets, "devices": self.devices}
        return {key: value for key, value in parts.items() if value}


def _groups(slices: Sequence[JSON]) -> Iterator[_SliceContent]:
    """Yield what must stay in one slice: devices with common counter sets, a device without, a set without devices."""
    sets = {counter_set["name"]: counter_set for spec in slices for counter_set in spec.get("sharedCounters", ())}
    devices = [device for part in slices for device in part.get("devices", ())]
    leaders = _leaders(devices)
    members: dict[str, list[str]] = {}
    for name in sets:
        members.setdefault(_leader(leaders, name), []).append(name)
    groups: dict[str, _SliceContent] = {}
    for device in devices:
        used = _used(device)
        key = _leader(leaders, used[0]) if used else f"device {device['name']}"  # a set's name has no space
        group = groups.setdefault(key, _SliceContent([sets[name] for name in members.get(key, ())]))
        group.devices.append(device)
    yield from groups.values()
    yield from (_SliceContent([sets[name]]) for name in members if name not in groups)


def _leaders(devices: Sequence[JSON]) -> dict[str, str]:
    """Return for a counter set that a device uses with others another of its group; the chain ends at the first."""
    leaders: dict[str, str] = {}
    for device in devices:
        roots = [_leader(leaders, name) for name in _used(device)]
        leaders.update({name: roots[0] for name in roots if name != roots[0]})
    return leaders


def _leader(leaders: dict[str, str], name: str) -> str:
    while name in leaders:
        name = leaders[name]
    return name


def _used(device: JSON) -> list[str]:
    return [consumption["counterSet"] for consumption in device.get("consumesCounters", ())]
