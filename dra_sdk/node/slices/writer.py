"""Applies the writes of one pool, and reports the fields that the API server did not store.

Fields of a disabled feature are dropped silently; list attributes leave something behind that is refused. Source:
resource.k8s.io/v1 field comments and the feature gates of Kubernetes 1.34 to 1.37.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dra_sdk.errors import ConflictError, InvalidError, InvalidObjectError, NotFoundError
from dra_sdk.kube.api import KubeApi
from dra_sdk.kube.paths import resource_slice, resource_slices
from dra_sdk.model import JSON
from dra_sdk.node.slices.cache import SliceCache
from dra_sdk.node.slices.diff import Operation, match, normal, same
from dra_sdk.node.slices.packing import NEEDED_BY_1_34
from dra_sdk.texts import shortened
from dra_sdk.wire.slice import is_list

log = logging.getLogger(__name__)
UNKNOWN: Final = "unknown"
_SHOWN: Final = 10  # slices, and fields of each slice; thousands of devices lose the same fields
_ELSEWHERE: Final = "must reference a counterSet defined in the ResourceSlice sharedCounters"
_PARTITIONS: Final = "DRAPartitionableDevices"
_SPEC_GATES: Final = {"perDeviceNodeSelection": _PARTITIONS, "sharedCounters": _PARTITIONS}
_DEVICE_GATES: Final = {
    "consumesCounters": _PARTITIONS,
    "nodeName": _PARTITIONS,
    "nodeSelector": _PARTITIONS,
    "allNodes": _PARTITIONS,
    "taints": "DRADeviceTaints",
    "bindsToNode": "DRADeviceBindingConditions",
    "bindingConditions": "DRADeviceBindingConditions",
    "bindingFailureConditions": "DRADeviceBindingConditions",
    "allowMultipleAllocations": "DRAConsumableCapacity",
    "capacity": "DRAConsumableCapacity",
    "nodeAllocatableResourceMappings": "DRANodeAllocatableResources",
    "nodeAllocatableResources": "DRANodeAllocatableResources",
    "attributes": "DRAListTypeAttributes",
}


@dataclass(slots=True)
class Stats:
    """What the controller did since it started.

    creates: how many slices it created.
    updates: how many it updated.
    deletes: how many it deleted.
    errors: how many problems it met.
    """

    creates: int = 0
    updates: int = 0
    deletes: int = 0
    errors: int = 0


class DroppedFieldsError(InvalidObjectError):
    """The API server stored slices without some fields.

    pool: the name of the pool.
    slices: the indexes of these slices.
    gates: the feature gates that are probably disabled.
    """

    def __init__(self, pool: str, dropped: dict[int, list[tuple[str, str]]]) -> None:
        self.pool = pool
        self.slices = sorted(dropped)
        self.gates = sorted({gate for fields in dropped.values() for _, gate in fields})
        problems = [
            f"slice {index}: the API server dropped {shortened([field for field, _ in fields], _SHOWN)}"
            for index, fields in sorted(dropped.items())[:_SHOWN]
        ]
        if len(dropped) > _SHOWN:
            problems.append(f"and so on in {len(dropped) - _SHOWN} more slices")
        problems.append("probably these feature gates are disabled: " + ", ".join(self.gates))
        super().__init__(f"pool {pool}", problems)


class SliceWriter:
    """Applies what `diff` found, keeps the cache up to date and counts."""

    def __init__(self, api: KubeApi, cache: SliceCache, stats: Stats) -> None:
        self._api = api
        self._cache = cache
        self._stats = stats

    def apply(
        self, operations: Sequence[Operation], specs: Sequence[JSON], pool: str
    ) -> tuple[Sequence[JSON], DroppedFieldsError | None]:
        """Apply the writes in order. The first ApiError ends it; earlier writes stay.

        Return the specs as the server stores them, so that what it changes is not sent again and again, and the fields
        that got lost.
        """
        kept = list(specs)
        dropped: dict[int, list[tuple[str, str]]] = {}
        for operation in operations:
            stored = self._write(operation)
            if stored is None or same(stored["spec"], operation.body["spec"]):
                continue
            if fields := dropped_fields(operation.body["spec"], stored["spec"]):
                dropped[operation.index] = fields
            kept[operation.index] = _planned(stored)
        return kept, DroppedFieldsError(pool, dropped) if dropped else None

    def accept_dropped(self, specs: Sequence[JSON], pool: str) -> tuple[Sequence[JSON], DroppedFieldsError | None]:
        """Return what is stored for `specs` if the server would drop the rest again, as after a restart of the driver.

        Only where all slices exist and some lack fields of some feature; otherwise return `specs`. Dry runs tell
        whether the feature is still disabled: a write would change nothing but the pool's generation. The second value
        are the fields that are lost.
        """
        existing = self._cache.of_pool(pool)
        matched, obsolete = match(existing, specs)
        if obsolete or len(matched) < len(specs):
            return specs, None
        lost: dict[int, list[tuple[str, str]]] = {}
        for index, item in matched.items():
            stored = item["spec"]
            spec = {"driver": stored["driver"], "pool": stored["pool"], **specs[index]}
            if same(stored, spec):
                continue
            fields = dropped_fields(spec, stored)
            if not fields or any(gate == UNKNOWN for _, gate in fields):
                return specs, None
            if not same(stored, self._update({**item, "spec": spec}, dry_run=True)["spec"]):
                return specs, None
            lost[index] = fields
        if not lost:
            return specs, None
        kept = [_planned(matched[index]) if index in lost else spec for index, spec in enumerate(specs)]
        return kept, DroppedFieldsError(pool, lost)

    def _write(self, operation: Operation) -> JSON | None:
        """Do one write. Return the stored object, None after a delete."""
        if operation.verb == "delete":
            self._delete(operation.body)
            self._stats.deletes += 1
            return None
        try:
            if operation.verb == "create":
                stored = self._api.create(resource_slices(), operation.body)
                self._stats.creates += 1
            else:
                stored = self._update(operation.body)
                self._stats.updates += 1
        except InvalidError as error:
            raise with_hint(error, operation.body["spec"]) from error
        if stored["spec"] == operation.body["spec"]:
            stored["spec"] = operation.body["spec"]  # keep one copy: with 5 000 devices a second one takes 9 MiB
        self._cache.put(stored)
        return stored

    def _delete(self, item: JSON) -> None:
        metadata = item["metadata"]
        try:
            path = resource_slice(metadata["name"])
            self._api.delete(path, uid=metadata.get("uid"), resource_version=metadata.get("resourceVersion"))
        except NotFoundError:
            log.debug("%s was deleted already", metadata["name"])
        except ConflictError:
            self._read_again(item)
            raise
        self._cache.forget(item)

    def _update(self, item: JSON, *, dry_run: bool = False) -> JSON:
        try:
            return self._api.update(resource_slice(item["metadata"]["name"]), item, dry_run=dry_run)
        except NotFoundError:
            self._cache.forget(item)
            raise
        except ConflictError:
            self._read_again(item)
            raise

    def _read_again(self, item: JSON) -> None:
        """Read a slice again before the next attempt, because the watch may be late."""
        try:
            stored = self._api.get(resource_slice(item["metadata"]["name"]))
        except NotFoundError:
            self._cache.forget(item)
            return
        if stored["metadata"].get("uid") != item["metadata"].get("uid"):
            self._cache.forget(item)
        self._cache.put(stored)


def _planned(stored: JSON) -> JSON:
    """Return the spec of a stored slice as `plan` makes it."""
    return {key: value for key, value in stored["spec"].items() if key not in {"driver", "pool"}}


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


def with_hint(error: InvalidError, spec: JSON) -> InvalidError:
    """Return the server's error 422, with the real reason added.

    A list attribute that it does not know becomes one without a value; 1.34 needs more in one slice than can be there.
    """
    values = (value for device in spec.get("devices", ()) for value in device.get("attributes", {}).values())
    if _ELSEWHERE in str(error):
        hint = NEEDED_BY_1_34
    elif any(map(is_list, values)):
        hint = f"a server without the feature gate {_DEVICE_GATES['attributes']} refuses list attributes in these words"
    else:
        return error
    return InvalidError(f"{error} ({hint})", status=error.status, reason=error.reason, retry_after=error.retry_after)


def _of_device(sent: JSON, stored: JSON | None) -> list[tuple[str, str]]:
    where = f"device {sent['name']}"
    if stored is None:
        return [(where, UNKNOWN)]
    dropped = [(f"{where}: {key}", _DEVICE_GATES.get(key, UNKNOWN)) for key in sent if key not in stored]
    for key in ("attributes", "capacity"):
        kept = stored.get(key, {})
        for name, value in sent.get(key, {}).items() if kept else ():
            if name not in kept or set(value) - set(kept[name]):
                dropped.append((f"{where}: {key} {name}", _DEVICE_GATES[key]))
    return dropped
