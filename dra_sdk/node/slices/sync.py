"""Make the slices of one pool what they shall be, write by write."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from dra_sdk.errors import ConflictError, InvalidError, NotFoundError
from dra_sdk.kube.api import KubeApi
from dra_sdk.kube.paths import resource_slice, resource_slices
from dra_sdk.model import JSON
from dra_sdk.node.slices.cache import SliceCache
from dra_sdk.node.slices.compare import same
from dra_sdk.node.slices.diff import Operation
from dra_sdk.node.slices.dropped import DroppedFieldsError, dropped_fields, explained

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Stats:
    """How often the controller wrote since it started, and how often something failed."""

    creates: int = 0
    updates: int = 0
    deletes: int = 0
    errors: int = 0


class Writer:
    """Carries out what `diff` found, keeps the cache up to date and counts."""

    def __init__(self, api: KubeApi, cache: SliceCache, stats: Stats) -> None:
        self._api = api
        self._cache = cache
        self._stats = stats

    def carry_out(self, operations: list[Operation], wanted: list[JSON], pool: str) -> DroppedFieldsError | None:
        """Write in order; the first ApiError ends it, and what was done stays done.

        Where the server stores something else than what was sent, `wanted` is changed to that, so that it is not sent
        for ever; fields that got lost are returned as an error.
        """
        dropped: dict[int, list[tuple[str, str]]] = {}
        for operation in operations:
            stored = self._write(operation)
            if stored is None or same(stored["spec"], operation.body["spec"]):
                continue
            if fields := dropped_fields(operation.body["spec"], stored["spec"]):
                dropped[operation.index] = fields
            spec = stored["spec"]
            wanted[operation.index] = {key: value for key, value in spec.items() if key not in {"driver", "pool"}}
        return DroppedFieldsError(pool, dropped) if dropped else None

    def _write(self, operation: Operation) -> JSON | None:
        """One write; the object as it was stored, None after a delete."""
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
            raise explained(error, operation.body["spec"]) from error
        if stored["spec"] == operation.body["spec"]:
            stored["spec"] = operation.body["spec"]  # which we have anyway: of 5 000 devices one more copy takes 9 MiB
        self._cache.put(stored)
        return stored

    def _delete(self, item: JSON) -> None:
        metadata = item["metadata"]
        try:
            path = resource_slice(metadata["name"])
            self._api.delete(path, uid=metadata.get("uid"), resource_version=metadata.get("resourceVersion"))
        except NotFoundError:
            _log.debug("%s was already gone", metadata["name"])
        except ConflictError:
            self._look_again(item)
            raise
        self._cache.forget(item)

    def _update(self, item: JSON) -> JSON:
        try:
            return self._api.update(resource_slice(item["metadata"]["name"]), item)
        except NotFoundError:
            self._cache.forget(item)
            raise
        except ConflictError:
            self._look_again(item)
            raise

    def _look_again(self, item: JSON) -> None:
        """Our copy is old, and the watch may not tell soon: read the slice, so that the next attempt has it."""
        try:
            found = self._api.get(resource_slice(item["metadata"]["name"]))
        except NotFoundError:
            self._cache.forget(item)
            return
        if found["metadata"].get("uid") != item["metadata"].get("uid"):
            self._cache.forget(item)
        self._cache.put(found)
