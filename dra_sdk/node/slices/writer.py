"""Applies the writes of one pool; asks which fields the API server would drop, and compares each answer."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dra_sdk.errors import ConflictError, InvalidError, InvalidObjectError, NotFoundError
from dra_sdk.kube.api import KubeApi
from dra_sdk.kube.paths import resource_slice, resource_slices
from dra_sdk.model import JSON
from dra_sdk.node.slices.cache import SliceCache
from dra_sdk.node.slices.diff import Operation, PoolIdentity, diff, same
from dra_sdk.node.slices.gates import DROPPING_GATES, LISTS, dropped_fields, samples
from dra_sdk.node.slices.packing import NEEDED_BY_1_34
from dra_sdk.node.slices.withholding import withheld_sentences
from dra_sdk.texts import shortened
from dra_sdk.wire.slice import is_list

log = logging.getLogger(__name__)
_SHOWN: Final = 10  # slices, and fields of each slice; thousands of devices lose the same fields
_ELSEWHERE: Final = "must reference a counterSet defined in the ResourceSlice sharedCounters"


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
    """The API server stores slices without some fields.

    pool: the name of the pool.
    dropped: the lost fields, each with its gate, by the index of the slice.
    slices: the indexes of these slices.
    gates: the feature gates that are probably disabled.
    withheld: the devices that are not published for that reason, each with the gate without which they cannot be.
    """

    def __init__(
        self,
        pool: str,
        dropped: Mapping[int, Sequence[tuple[str, str]]],
        withheld: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.pool = pool
        self.dropped = dropped
        self.slices = sorted(dropped)
        self.gates = sorted({gate for fields in dropped.values() for _, gate in fields})
        self.withheld = withheld
        problems = [
            *withheld_sentences(withheld),
            *(
                f"slice {index}: the API server dropped {shortened([field for field, _ in fields], _SHOWN)}"
                for index, fields in sorted(dropped.items())[:_SHOWN]
            ),
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

    def lost_gates(self, specs: Sequence[JSON], identity: PoolIdentity) -> set[str]:
        """Return the gates whose fields the server would drop of these slices. Asked with dry runs, so nothing is seen.

        Few slices stand for all, because a server drops all fields of a gate at once. InvalidError if it refuses one.
        """
        bodies = [operation.body for operation in diff([], specs, identity)]
        return {gate for index in samples(specs) for gate in self._lost_of(bodies[index])} & DROPPING_GATES

    def _lost_of(self, body: JSON) -> Iterator[str]:
        try:
            stored = self._api.create(resource_slices(), body, dry_run=True)
        except InvalidError as error:
            raise with_hint(error, body["spec"]) from error
        yield from (gate for _, gate in dropped_fields(body["spec"], stored["spec"]))

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

    def _update(self, item: JSON) -> JSON:
        try:
            return self._api.update(resource_slice(item["metadata"]["name"]), item)
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


def with_hint(error: InvalidError, spec: JSON) -> InvalidError:
    """Return the server's error 422, with the real reason added.

    A list attribute that it does not know becomes one without a value; 1.34 needs more in one slice than can be there.
    """
    values = (value for device in spec.get("devices", ()) for value in device.get("attributes", {}).values())
    if _ELSEWHERE in str(error):
        hint = NEEDED_BY_1_34
    elif any(map(is_list, values)):
        hint = f"a server without the feature gate {LISTS} refuses list attributes in these words"
    else:
        return error
    return InvalidError(f"{error} ({hint})", status=error.status, reason=error.reason, retry_after=error.retry_after)
