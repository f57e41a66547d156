"""The API server's storage: objects in memory with the semantics of the server, as raw JSON.

Every write goes through here: names, uid, resourceVersion, generation, conflicts, finalizers, managed fields, admission
and the events of watches. HTTP clients (`server`) and clients in this process (`local`) share one `ObjectStore`.
Contract: the Kubernetes API conventions.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass

from dra_sdk.model import JSON
from dra_sdk.tools.simulator import managed_fields, metadata, patching, statuses
from dra_sdk.tools.simulator.managed_fields import ManagedFields, Manager, Ownership
from dra_sdk.tools.simulator.resources import CATALOG, Catalog, ResourceType
from dra_sdk.tools.simulator.selectors import ObjectSelector
from dra_sdk.tools.simulator.watch_cache import (
    StoredObject,
    WatchCache,
    WatchCacheEvent,
    Watcher,
    WatchEvent,
    encode,
)

WATCH_CACHE_SIZE = 1000
_NAME_ATTEMPTS = 8
StoredObjects = list[StoredObject]
JsonPatch = list[JSON]


@dataclass(frozen=True)
class Write:
    """One write before it is stored, as an admission callable sees it.

    verb: create, update (also for patches) or delete.
    resource: the kind.
    subresource: `status` or "".
    object: the object that will be stored, for a delete the one that will be deleted; may be changed.
    old: the object that is stored now, None for a create; must not be changed.
    """

    verb: str
    resource: ResourceType
    subresource: str
    object: JSON
    old: JSON | None


Admission = Callable[[Write], None]
"""Called for every write before it is stored; may change `write.object` or raise `StatusError`."""
Decode = Callable[[ResourceType, JSON], tuple[JSON, list[str]]]
"""Reads an object that a client sent: the object with default values and without unknown fields, and their paths."""
OnUnknown = Callable[[list[str]], None]
"""Called with the paths of unknown fields, if there are any; may raise `StatusError`."""


@dataclass(frozen=True)
class WriteOptions:
    """How a client writes.

    manager: its field manager, "" if it names none.
    subresource: through which it writes, `status`, or "" for the object itself.
    dry_run: whether nothing is stored; the answer is what would be.
    force: whether an apply takes fields from other managers.
    unknown: what becomes of unknown fields; None drops them without a word. An apply refuses them.
    """

    manager: str = ""
    subresource: str = ""
    dry_run: bool = False
    force: bool = False
    unknown: OnUnknown | None = None


_PLAIN = WriteOptions()


class ObjectStore:
    """The objects of one cluster. Thread-safe; every method may raise `statuses.StatusError`.

    `watch_cache_size` is the number of writes per kind from before its start that a watch can still get. The store
    itself takes any JSON; `decode` and `admit` bring in the rules of an API (see `strategy`).
    """

    def __init__(self, catalog: Catalog = CATALOG, *, watch_cache_size: int = WATCH_CACHE_SIZE) -> None:
        self.catalog = catalog
        self.decode: Decode = _as_sent
        self.admit: list[Admission] = []
        self._lock = threading.RLock()
        self._version = 0
        self._objects: dict[ResourceType, dict[tuple[str, str], StoredObject]] = {t: {} for t in catalog}
        self._caches = {t: WatchCache(watch_cache_size) for t in catalog}
        self._watchers: dict[ResourceType, set[Watcher]] = {t: set() for t in catalog}

    @property
    def version(self) -> int:
        """The resourceVersion of the latest write."""
        with self._lock:
            return self._version

    # -- reading

    def get(self, resource: ResourceType, name: str, namespace: str = "") -> StoredObject:
        """Return one object; `StatusError` 404."""
        with self._lock:
            stored = self._objects[resource].get((namespace, name))
        if stored is None:
            raise statuses.not_found(resource, name)
        return stored

    def exists(self, resource: ResourceType, name: str, namespace: str = "") -> bool:
        """Return whether there is such an object."""
        with self._lock:
            return (namespace, name) in self._objects[resource]

    def list(self, resource: ResourceType, selector: ObjectSelector) -> tuple[StoredObjects, int]:
        """Return the objects in the selection, ordered by namespace and name, and the resourceVersion of the list."""
        with self._lock:
            objects = [self._objects[resource][key] for key in sorted(self._objects[resource])]
            version = self._version
        return [stored for stored in objects if selector.matches(stored.object)], version

    def list_at(self, resource: ResourceType, selector: ObjectSelector, version: int) -> StoredObjects:
        """Return the objects in the selection at an earlier `version`; `StatusError` 410 if that is too old."""
        with self._lock:
            objects = dict(self._objects[resource])
            for write in reversed(self._caches[resource].since(version)):
                if write.before is not None:
                    objects[write.before.namespace, write.before.name] = write.before
                elif write.after is not None:
                    del objects[write.after.namespace, write.after.name]
        return [objects[key] for key in sorted(objects) if selector.matches(objects[key].object)]

    def check_version(self, resource: ResourceType, version: int) -> None:
        """Raise `StatusError` 410 if the watch cache no longer has all writes after `version`."""
        with self._lock:
            self._caches[resource].since(version)

    def watch(
        self, resource: ResourceType, selector: ObjectSelector, *, version: int | None = None, initial: bool = False
    ) -> Watcher:
        """Open a watch for the writes after `version`; for None or 0 it starts with the present objects, as ADDED.

        `initial` starts with the present objects in any case, followed by a bookmark (the watch-list protocol). If the
        writes after `version` are no longer in the watch cache, the only event is ERROR with status 410. Close the
        watch with `unwatch`.
        """
        watcher = Watcher(resource, selector, after=version or 0)
        with self._lock:
            if initial or not version:
                for stored in self.list(resource, selector)[0]:
                    watcher.put(WatchEvent("ADDED", stored.version, stored.encoded))
                if initial:
                    watcher.bookmark(self._version, initial_end=True)
            else:
                try:
                    missed = self._caches[resource].since(version)
                except statuses.StatusError as error:
                    watcher.fail(error)
                    return watcher
                for write in missed:
                    watcher.offer(write)
            self._watchers[resource].add(watcher)
        return watcher

    def bookmark(self, watcher: Watcher) -> None:
        """Send a watch a bookmark with the present resourceVersion."""
        with self._lock:
            watcher.bookmark(self._version)

    def unwatch(self, watcher: Watcher) -> None:
        """Close a watch."""
        with self._lock:
            self._watchers[watcher.resource].discard(watcher)
        watcher.close()

    @property
    def watches(self) -> tuple[Watcher, ...]:
        """The open watches."""
        with self._lock:
            return tuple(watcher for watchers in self._watchers.values() for watcher in watchers)

    def expire_history(self) -> None:
        """Drop all past writes, as etcd compaction does: a watch from an older resourceVersion gets 410."""
        with self._lock:
            for cache in self._caches.values():
                cache.drop(self._version)

    # -- writing

    def create(
        self, resource: ResourceType, obj: JSON, namespace: str = "", *, options: WriteOptions = _PLAIN
    ) -> StoredObject:
        """Store a new object. The store keeps `obj` itself: the caller must not change it afterwards."""
        metadata.check_type(resource, obj)
        obj = self._decoded(resource, obj, options.unknown)
        with self._lock:
            created = metadata.for_create(resource, obj, namespace)
            self._check_namespace(resource, created)
            if (obj.get("metadata") or {}).get("name"):
                if self._key(created) in self._objects[resource]:
                    raise statuses.already_exists(resource, created["metadata"]["name"])
            else:
                self._ensure_free_name(resource, created)
            created = self._admitted(Write("create", resource, "", created, None))
            return self._store(resource, None, self._owned(None, created, options), dry_run=options.dry_run)

    def update(
        self, resource: ResourceType, obj: JSON, namespace: str = "", *, name: str = "", options: WriteOptions = _PLAIN
    ) -> StoredObject:
        """Replace an object, or only its status; 409 if `obj` has another resourceVersion or uid than the stored one.

        An update that changes nothing leaves the resourceVersion as it is and is no event for watches.
        """
        metadata.check_type(resource, obj)
        obj = self._decoded(resource, obj, options.unknown)
        given = obj.get("metadata") or {}
        namespace = metadata.checked_namespace(resource, given, namespace)
        if name and given.get("name", name) != name:
            why = f"the name of the object ({given['name']}) does not match the name on the URL ({name})"
            raise statuses.bad_request(why)
        with self._lock:
            current = self.get(resource, name or given.get("name", ""), namespace)
            return self._replace(current, obj, options)

    def patch(
        self,
        resource: ResourceType,
        patch: JSON | JsonPatch,
        name: str,
        namespace: str = "",
        *,
        options: WriteOptions = _PLAIN,
    ) -> StoredObject:
        """Patch an object or its status: a dict is a JSON merge patch, a list a JSON patch.

        409 if the patch has another resourceVersion than the stored one.
        """
        with self._lock:
            current = self.get(resource, name, namespace)
            try:
                wanted = patching.patched(current.object, patch)
            except patching.PatchError as error:
                raise statuses.invalid(resource, name, [("patch", "FieldValueInvalid", str(error))]) from None
            return self._replace(current, self._decoded(resource, wanted, options.unknown), options)

    def apply(
        self, resource: ResourceType, config: JSON, name: str, namespace: str = "", *, options: WriteOptions
    ) -> StoredObject:
        """Apply on the server's side. A missing object is created; a subresource of one is `StatusError` 404."""
        if not options.manager:
            cause = ("fieldManager", "FieldValueRequired", "Required value: is required for apply patch")
            raise statuses.invalid(resource, name, [cause])
        metadata.check_type(resource, config)
        self._decoded(resource, config, _refuse_unknown)
        given = {**(config.get("metadata") or {}), "name": name}
        config = {**config, "metadata": given}
        subresource, writer = options.subresource, Manager(options.manager, "Apply", options.subresource)
        with self._lock:
            current = self._objects[resource].get((namespace, name))
            if current is None:
                return self._apply_new(resource, config, namespace, writer, dry_run=options.dry_run)
            metadata.check_preconditions(resource, current.object, given)
            config = metadata.applicable(resource, config, subresource)
            merged = managed_fields.applied(current.object, config, writer, metadata.now(), force=options.force)
            owners = merged["metadata"]["managedFields"]
            merged = self._decoded(resource, merged, None)
            updated = metadata.for_update(resource, current.object, merged, subresource)
            updated = self._admitted(Write("update", resource, subresource, updated, current.object))
            updated["metadata"] = {**updated["metadata"], "managedFields": owners}
            return self._store(resource, current, updated, dry_run=options.dry_run)

    def delete(
        self,
        resource: ResourceType,
        name: str,
        namespace: str = "",
        *,
        preconditions: JSON | None = None,
        dry_run: bool = False,
    ) -> StoredObject:
        """Delete an object and return its last state; 409 if it has not the uid and resourceVersion in `preconditions`.

        An object with finalizers gets a deletionTimestamp and stays until an update removes its last finalizer.
        """
        with self._lock:
            current = self.get(resource, name, namespace)
            metadata.check_preconditions(resource, current.object, preconditions or {})
            self._admitted(Write("delete", resource, "", current.object, current.object))
            if current.object["metadata"].get("finalizers"):
                marks = {"deletionTimestamp": metadata.now(), "deletionGracePeriodSeconds": 0}
                marked = {**current.object, "metadata": {**marks, **current.object["metadata"]}}
                return self._store(resource, current, marked, dry_run=dry_run)
            return current if dry_run else self._remove(current)

    def delete_collection(
        self, resource: ResourceType, selector: ObjectSelector, *, dry_run: bool = False
    ) -> StoredObjects:
        """Delete every object in the selection and return them."""
        with self._lock:
            return [
                self.delete(resource, stored.name, stored.namespace, dry_run=dry_run)
                for stored in self.list(resource, selector)[0]
            ]

    # -- inside

    def _replace(self, current: StoredObject, wanted: JSON, options: WriteOptions) -> StoredObject:
        resource, given, subresource = current.resource, wanted.get("metadata") or {}, options.subresource
        metadata.check_preconditions(resource, current.object, given)
        updated = metadata.for_update(resource, current.object, wanted, subresource)
        updated = self._admitted(Write("update", resource, subresource, updated, current.object))
        owned = self._owned(current.object, updated, options)
        return self._store(resource, current, owned, dry_run=options.dry_run)

    def _apply_new(
        self, resource: ResourceType, config: JSON, namespace: str, writer: Manager, *, dry_run: bool
    ) -> StoredObject:
        if writer.subresource:
            raise statuses.not_found(resource, config["metadata"]["name"])
        part = metadata.applicable(resource, config, "")
        created = metadata.for_create(resource, self._decoded(resource, part, None), namespace)
        self._check_namespace(resource, created)
        created = self._admitted(Write("create", resource, "", created, None))
        fields = frozenset(managed_fields.fields_of(part).keys() & managed_fields.fields_of(created).keys())
        owners = ManagedFields({}).with_fields(writer, Ownership(fields, metadata.now(), resource.api_version), ())
        created["metadata"] = {**created["metadata"], "managedFields": owners.encoded()}
        return self._store(resource, None, created, dry_run=dry_run)

    def _decoded(self, resource: ResourceType, obj: JSON, unknown: OnUnknown | None) -> JSON:
        metadata.check_structure(resource, obj)
        decoded, fields = self.decode(resource, obj)
        if fields and unknown is not None:
            unknown(fields)
        return decoded

    def _admitted(self, write: Write) -> JSON:
        if not self.admit:
            return write.object
        own: JSON = json.loads(encode(write.object))
        private = Write(write.verb, write.resource, write.subresource, own, write.old)
        for admission in self.admit:
            admission(private)
        return private.object

    def _owned(self, before: JSON | None, after: JSON, options: WriteOptions) -> JSON:
        writer = Manager(options.manager or "unknown", "Update", options.subresource)
        owners = managed_fields.after_update(before, after, writer, metadata.now())
        return {**after, "metadata": {**after["metadata"], "managedFields": owners}}

    def _store(self, resource: ResourceType, current: StoredObject | None, obj: JSON, *, dry_run: bool) -> StoredObject:
        version = current.version if current else self._version
        if current and metadata.is_unchanged(current.object, obj):
            return current
        if dry_run:
            return StoredObject(resource, obj, version)
        if current and obj["metadata"].get("deletionTimestamp") and not obj["metadata"].get("finalizers"):
            return self._remove(StoredObject(resource, obj, version), before=current)
        self._version += 1
        stored = StoredObject(resource, obj, self._version)
        self._objects[resource][self._key(obj)] = stored
        self._publish(resource, WatchCacheEvent(self._version, current, stored))
        return stored

    def _remove(self, last: StoredObject, before: StoredObject | None = None) -> StoredObject:
        self._version += 1
        del self._objects[last.resource][(last.namespace, last.name)]
        self._publish(last.resource, WatchCacheEvent(self._version, before or last, None))
        return last.at(self._version)

    def _publish(self, resource: ResourceType, write: WatchCacheEvent) -> None:
        self._caches[resource].append(write)
        for watcher in self._watchers[resource]:
            watcher.offer(write)

    def _key(self, obj: JSON) -> tuple[str, str]:
        return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]

    def _check_namespace(self, resource: ResourceType, obj: JSON) -> None:
        namespaces = self.catalog.find("", "v1", "namespaces")
        if resource.namespaced and namespaces:
            self.get(namespaces, obj["metadata"]["namespace"])

    def _ensure_free_name(self, resource: ResourceType, obj: JSON) -> None:
        given = obj["metadata"]
        for _ in range(_NAME_ATTEMPTS):
            if self._key(obj) not in self._objects[resource]:
                return
            given["name"] = metadata.generated_name(given["generateName"])
        raise statuses.already_exists(resource, given["name"])


def _as_sent(_: ResourceType, obj: JSON) -> tuple[JSON, list[str]]:
    return obj, []


def _refuse_unknown(fields: list[str]) -> None:
    why = f"failed to create typed patch object: .{fields[0]}: field not declared in schema"
    raise statuses.StatusError(500, "", why)
