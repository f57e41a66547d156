"""From the slices that a pool has to those that it must have, in as few writes as possible.

Pure. The rules are those of k8s.io/dynamic-resource-allocation/resourceslice, so that slices stay the same when a
driver moves from Go to Python: a slice is recognised by the index in its name; a pool with one changed slice keeps its
generation; any other change raises the generation and rewrites all slices.

The API server rewrites specs: it drops empty fields, writes quantities in its own form and stamps taints with the
time, to the second. These are no changes. Source: resource.k8s.io/v1 defaulting; apimachinery Quantity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity

_API: Final = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
_TOLERANCE: Final = timedelta(seconds=1)
_FALSE_IS_UNSET: Final = frozenset({
    "bindsToNode", "allowMultipleAllocations", "allNodes", "perDeviceNodeSelection",
})  # fmt: skip
_MULTIPLIERS: Final = frozenset({"allocationMultiplier", "capacityMultiplier", "deviceMultiplier"})
_QUANTITIES: Final = _MULTIPLIERS | {"value", "default", "min", "max", "step", "validValues"}
_MIN_DIGITS: Final = 5
_LIMIT: Final = 2**63
_HEX: Final = re.compile("[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Owner:
    """The object with which the slices are deleted (meta/v1 OwnerReference): the Node, for a node's driver.

    name: its name.
    uid: its UID.
    api_version: its API version.
    kind: its kind.
    """

    name: str
    uid: str
    api_version: str = "v1"
    kind: str = "Node"

    def reference(self) -> JSON:
        """Return the entry of `metadata.ownerReferences`."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
        }


@dataclass(frozen=True, slots=True)
class Operation:
    """One write.

    verb: what is done.
    body: the whole object: the new one, or for a delete the stored one.
    index: its place in the pool, -1 for a delete.
    """

    verb: Literal["delete", "update", "create"]
    body: JSON
    index: int = -1


@dataclass(frozen=True, slots=True)
class PoolIdentity:
    """What all slices of a pool have in common.

    driver: the driver's name.
    pool: the pool's name.
    owner: the owner of the slices, None for none.
    """

    driver: str
    pool: str
    owner: Owner | None = None


def diff(
    existing: Sequence[JSON], wanted: Sequence[JSON], identity: PoolIdentity, generation: int = 0
) -> list[Operation]:
    """Return the writes in order: deletes, updates, creates. None if the server's slices are as desired.

    `existing` are the pool's stored ResourceSlices, `wanted` specs without `driver` and `pool` (see `plan`); an empty
    list deletes the pool. `generation` is the lowest generation allowed.
    """
    now = _newest(existing)
    matched, obsolete = match(existing, wanted)
    specs = with_times(wanted, [item["spec"] for item in existing])
    changed = [
        index
        for index, stored in matched.items()
        if not (_owned(stored, identity.owner) and same(stored["spec"], _spec(specs, index, identity, now)))
    ]
    missing = [index for index in range(len(specs)) if index not in matched]
    after = max(now if not missing and len(changed) <= 1 else now + 1, generation)
    if after != now:
        changed = list(matched)
    return [
        *(Operation("delete", stored) for stored in obsolete),
        *(Operation("update", _updated(matched[i], _spec(specs, i, identity, after), identity), i) for i in changed),
        *(Operation("create", _created(_spec(specs, i, identity, after), i, len(specs), identity), i) for i in missing),
    ]


def match(existing: Sequence[JSON], wanted: Sequence[JSON]) -> tuple[dict[int, JSON], list[JSON]]:
    """Return the slices by their place in the pool, in order, and the slices without a place."""
    matched: dict[int, JSON] = {}
    obsolete: list[JSON] = []
    generation = _newest(existing)
    for item in sorted(existing, key=lambda item: str(item["metadata"]["name"])):
        index = _place(item, wanted, generation)
        if index is None or index in matched:
            obsolete.append(item)
        else:
            matched[index] = item
    return dict(sorted(matched.items())), obsolete


def _newest(existing: Sequence[JSON]) -> int:
    return max(map(_generation, existing), default=0)


def _place(stored: JSON, wanted: Sequence[JSON], generation: int) -> int | None:
    try:
        index = decode_index(stored["metadata"]["name"], index_length(len(wanted)))
    except ValueError:
        return None
    if _generation(stored) < generation or index >= len(wanted):
        return None
    if (stored["spec"].get("nodeName") or None) != wanted[index].get("nodeName"):
        return None  # the field is immutable
    return index


def _generation(stored: JSON) -> int:
    return int(stored["spec"]["pool"].get("generation") or 0)


def _owned(stored: JSON, owner: Owner | None) -> bool:
    references = stored["metadata"].get("ownerReferences") or []
    return owner is None or any(reference.get("uid") == owner.uid for reference in references)


def _spec(specs: Sequence[JSON], index: int, identity: PoolIdentity, generation: int) -> JSON:
    pool = {"name": identity.pool, "generation": generation, "resourceSliceCount": len(specs)}
    return {"driver": identity.driver, "pool": pool, **specs[index]}


def _updated(stored: JSON, spec: JSON, identity: PoolIdentity) -> JSON:
    metadata = dict(stored["metadata"])
    if identity.owner:
        metadata["ownerReferences"] = [identity.owner.reference()]
    return {**_API, "metadata": metadata, "spec": spec}


def _created(spec: JSON, index: int, count: int, identity: PoolIdentity) -> JSON:
    owner = identity.owner
    metadata: JSON = {"generateName": generate_name(index, count, identity.driver, owner.name if owner else None)}
    if owner:
        metadata["ownerReferences"] = [owner.reference()]
    return {**_API, "metadata": metadata, "spec": spec}


def same(stored: JSON, wanted: JSON) -> bool:
    """Return whether the stored spec means the same as the wanted one, so that it needs no update."""
    if stored == wanted:
        return True  # usually: the server returns what it was sent
    ours, theirs = normal(wanted), normal(stored)
    our_times, their_times = list(_take_times(ours)), list(_take_times(theirs))
    return ours == theirs and all(map(_close, our_times, their_times))


def normal(spec: JSON) -> JSON:
    """Return a copy without empty fields and with canonical quantities."""
    pruned: JSON = _pruned(spec)
    for device in pruned.get("devices", ()):
        for field in ("capacity", "consumesCounters", "nodeAllocatableResourceMappings", "nodeAllocatableResources"):
            if field in device:
                device[field] = _canonical(device[field])
    if "sharedCounters" in pruned:
        pruned["sharedCounters"] = _canonical(pruned["sharedCounters"])
    return pruned


def with_times(wanted: Sequence[JSON], existing: Sequence[JSON]) -> list[JSON]:
    """Return the wanted specs; a taint without a time gets that of the same taint of the same device in `existing`."""
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
        pairs = ((key, _pruned(item)) for key, item in value.items() if not (item is False and key in _FALSE_IS_UNSET))
        return {key: item for key, item in pairs if item is not None and item not in ({}, [])}
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    return value


def _canonical(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _canonical(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item, key) for item in value]
    if key in _QUANTITIES and isinstance(value, (str, int)):
        try:
            return str(Quantity(value))
        except ValueError:
            return value
    return value


def index_length(count: int) -> int:
    """Return how many hex digits the indexes of `count` slices have."""
    return max(_MIN_DIGITS, len(f"{max(count - 1, 0):x}"))


def encode_index(index: int, length: int) -> str:
    """Return an index as it begins a name."""
    return f"{index:0{length}x}"


def decode_index(name: str, length: int) -> int:
    """Return the index that a name begins with; ValueError if it has none of this length.

    Names of slices are `<index in hex>-<driver>-<owner>-<random>`. The scheduler tries slices in the order of their
    names, so the index comes first, with at least five digits; it is also how a slice is recognised after a restart.
    """
    digits, dash, _ = name.partition("-")
    if not dash or len(digits) != length:
        raise ValueError(f"{name!r} does not begin with an index of {length} digits and a dash")
    if not _HEX.fullmatch(digits) or int(digits, 16) >= _LIMIT:
        raise ValueError(f"{name!r} does not begin with a hexadecimal index")
    return int(digits, 16)


def generate_name(index: int, count: int, driver: str, owner: str | None) -> str:
    """Return `metadata.generateName` of one slice of a pool with `count` slices.

    Lower case, as object names must be, although a driver's name may have upper-case letters.
    """
    return "-".join([encode_index(index, index_length(count)), driver, *([owner] if owner else []), ""]).lower()
