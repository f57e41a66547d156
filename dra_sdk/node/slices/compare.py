"""When two slice specs mean the same, although the API server rewrote one of them.

It drops empty fields, writes quantities in its own form and stamps taints with the time; none of this is a change.
Source: resource.k8s.io/v1 defaulting; k8s.io/apimachinery Quantity; taint times are kept to the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity

_TOLERANCE: Final = timedelta(seconds=1)
_FALSE_IS_UNSET: Final = frozenset({
    "bindsToNode", "allowMultipleAllocations", "allNodes", "perDeviceNodeSelection",
})  # fmt: skip
_QUANTITIES: Final = frozenset({"value", "default", "min", "max", "step", "validValues", "allocationMultiplier"})


def same(stored: JSON, wanted: JSON) -> bool:
    """Whether the stored spec needs no update to become the wanted one."""
    if stored == wanted:
        return True  # as it is most of the time: the server returns what it was sent
    ours, theirs = normal(wanted), normal(stored)
    our_times, their_times = list(_take_times(ours)), list(_take_times(theirs))
    return ours == theirs and all(map(_close, our_times, their_times))


def normal(spec: JSON) -> JSON:
    """A copy without empty fields and with canonical quantities."""
    found: JSON = _pruned(spec)
    for device in found.get("devices", ()):
        for field in ("capacity", "consumesCounters", "nodeAllocatableResourceMappings"):
            if field in device:
                device[field] = _canonical(device[field])
    if "sharedCounters" in found:
        found["sharedCounters"] = _canonical(found["sharedCounters"])
    return found


def with_times(wanted: Sequence[JSON], existing: Sequence[JSON]) -> list[JSON]:
    """The wanted specs, where taints without a time have that of the same taint of the same device in `existing`."""
    if all(taint.get("timeAdded") for _, taint in _taints(wanted)):
        return list(wanted)
    known = {_taint_key(device, taint): taint.get("timeAdded") for device, taint in _taints(existing)}
    copies = deepcopy(list(wanted))
    for device, taint in _taints(copies):
        moment = known.get(_taint_key(device, taint))
        if moment and not taint.get("timeAdded"):
            taint["timeAdded"] = moment
    return copies


def _taints(specs: Sequence[JSON]) -> Iterator[tuple[str, JSON]]:
    for spec in specs:
        for device in spec.get("devices") or ():
            for taint in device.get("taints") or ():
                yield device["name"], taint


def _taint_key(device: str, taint: JSON) -> tuple[str, str, str, str]:
    return device, taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")


def _take_times(spec: JSON) -> Iterator[str | None]:
    for _, taint in _taints([spec]):
        yield taint.pop("timeAdded", None)


def _close(ours: str | None, theirs: str | None) -> bool:
    if ours is None or theirs is None or ours == theirs:
        return True
    try:
        return abs(datetime.fromisoformat(ours) - datetime.fromisoformat(theirs)) <= _TOLERANCE
    except (ValueError, TypeError):
        return False


def _pruned(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = ((key, _pruned(each)) for key, each in value.items() if not (each is False and key in _FALSE_IS_UNSET))
        return {key: each for key, each in pairs if each is not None and each not in ({}, [])}
    if isinstance(value, list):
        return [_pruned(each) for each in value]
    return value


def _canonical(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _canonical(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_canonical(each, key) for each in value]
    if key in _QUANTITIES and isinstance(value, (str, int)):
        try:
            return str(Quantity(value))
        except ValueError:
            return value
    return value
