"""The API server's storage: objects in memory with the server's semantics, as raw JSON.

Everything that changes an object goes through here: names, uid, resourceVersion, generation, conflicts, finalizers,
ownership of fields, admission, and the events that watches see. The HTTP endpoint (`server`) and the in-process view
(`local`) are two faces of one `ObjectStore`. Contract: the Kubernetes API conventions.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dra_sdk.model import JSON
from dra_sdk.tools.simulator import apply, managed_fields, metadata, patching, statuses
from dra_sdk.tools.simulator.history import Change, Entry, History, Watch, WatchEvent, encode
from dra_sdk.tools.simulator.managed_fields import Manager
from dra_sdk.tools.simulator.resources import CATALOG, Catalog

if TYPE_CHECKING:
    from dra_sdk.tools.simulator.resources import ResourceType
    from dra_sdk.tools.simulator.selectors import Selector

WINDOW = 1000
_NAME_ATTEMPTS = 8
Entries = list[Entry]
Operations = list[JSON]


@dataclass(frozen=True)
class Write:
    """One write on its way into the store, as an admission callable sees it.

    `verb` is create, update (also for patches) or delete. `object` is the callable's own to change, and is what gets
    stored; for a delete it is the object that would go. `old` is what is stored now, None for a create: leave it alone.
    """

    verb: str
    resource: ResourceType
    subresource: str
    object: JSON
    old: JSON | None


Admission = Callable[[Write], None]
"""Called for every write before it is stored: may change `write.object` (drop fields) or raise `StatusError`."""
Decode = Callable[["ResourceType", JSON], tuple[JSON, list[str]]]
"""Reads an object that is sent: with default values and without unknown fields, whose paths come back too."""
OnUnknown = Callable[[list[str]], None]
"""Called with the paths of unknown fields, where there are any; may raise `StatusError`."""


class ObjectStore:
    """The objects of one cluster. Thread-safe; every method may raise `statuses.StatusError`.

    `window` is how many changes per kind a watch can start back from. By itself the store takes any JSON; what the
    objects of an API may be comes in through `decode` and `admit` (see `strategy`).
    """

    def __init__(self, catalog: Catalog = CATALOG, *, window: int = WINDOW) -> None:
        self.catalog = catalog
        self.decode: Decode = _as_sent
        self.admit: list[Admission] = []
        self._lock = threading.RLock()
        self._version = 0
        self._objects: dict[ResourceType, dict[tuple[str, str], Entry]] = {t: {} for t in catalog}
        self._histories = {t: History(window) for t in catalog}
        self._watches: dict[ResourceType, set[Watch]] = {t: set() for t in catalog}

    @property
    def version(self) -> int:
        """The resourceVersion of the latest write."""
        with self._lock:
            return self._version

    # -- reading

    def get(self, resource: ResourceType, name: str, namespace: str = "") -> Entry:
        """One object, or `StatusError` 404."""
        with self._lock:
            found = self._objects[resource].get((namespace, name))
        if found is None:
            raise statuses.not_found(resource, name)
        return found

    def exists(self, resource: ResourceType, name: str, namespace: str = "") -> bool:
        """Whether there is such an object."""
        with self._lock:
            return (namespace, name) in self._objects[resource]

    def list(self, resource: ResourceType, selector: Selector) -> tuple[Entries, int]:
        """The objects in the selection, ordered by namespace and name, and the resourceVersion of the list."""
        with self._lock:
            entries = [self._objects[resource][key] for key in sorted(self._objects[resource])]
            version = self._version
        return [entry for entry in entries if selector.matches(entry.object)], version

    def list_at(self, resource: ResourceType, selector: Selector, version: int) -> Entries:
        """The same as it was at an earlier `version`; `StatusError` 410 where that is forgotten."""
        with self._lock:
            objects = dict(self._objects[resource])
            for change in reversed(self._histories[resource].since(version)):
                if change.before is not None:
                    objects[change.before.namespace, change.before.name] = change.before
                elif change.after is not None:
                    del objects[change.after.namespace, change.after.name]
        return [objects[key] for key in sorted(objects) if selector.matches(objects[key].object)]

    def check_remembered(self, resource: ResourceType, version: int) -> None:
        """`StatusError` 410 where the changes after `version` are forgotten in part."""
        with self._lock:
            self._histories[resource].since(version)

    def watch(
        self, resource: ResourceType, selector: Selector, *, version: int | None = None, initial: bool = False
    ) -> Watch:
        """Opens a watch after `version`; None or 0 starts with the objects there are, as ADDED events.

        `initial` sends them in any case, then the bookmark that says so (the watch-list protocol). A version that the
        history has forgotten gives a watch whose only event is ERROR with status 410. Close the watch when done.
        """
        watch = Watch(resource, selector, after=version or 0)
        with self._lock:
            if initial or not version:
                for entry in self.list(resource, selector)[0]:
                    watch.put(WatchEvent("ADDED", entry.version, entry.encoded))
                if initial:
                    watch.bookmark(self._version, initial_end=True)
            else:
                try:
                    missed = self._histories[resource].since(version)
                except statuses.StatusError as error:
                    watch.fail(error)
                    return watch
                for change in missed:
                    watch.offer(change)
            self._watches[resource].add(watch)
        return watch

    def bookmark(self, watch: Watch) -> None:
        """Tells a watch how far it has come."""
        with self._lock:
            watch.bookmark(self._version)

    def unwatch(self, watch: Watch) -> None:
        """Closes a watch and forgets it."""
        with self._lock:
            self._watches[watch.resource].discard(watch)
        watch.close()

    @property
    def watches(self) -> tuple[Watch, ...]:
        """The open watches."""
        with self._lock:
            return tuple(watch for watches in self._watches.values() for watch in watches)

    def expire_history(self) -> None:
        """Forgets all past changes, as etcd compaction does: an older resourceVersion now gets 410."""
        with self._lock:
            for history in self._histories.values():
                history.forget(self._version)

    # -- writing

    def create(
        self,
        resource: ResourceType,
        obj: JSON,
        namespace: str = "",
        *,
        manager: str = "",
        dry_run: bool = False,
        unknown: OnUnknown | None = None,
    ) -> Entry:
        """Stores a new object; the store keeps `obj`, so hand over a copy."""
        metadata.check_type(resource, obj)
        obj = self._decoded(resource, obj, unknown)
        with self._lock:
            created = metadata.for_create(resource, obj, namespace)
            self._check_namespace(resource, created)
            if (obj.get("metadata") or {}).get("name"):
                if self._key(created) in self._objects[resource]:
                    raise statuses.already_exists(resource, created["metadata"]["name"])
            else:
                self._ensure_free_name(resource, created)
            created = self._admitted(Write("create", resource, "", created, None))
            return self._store(resource, None, self._owned(None, created, manager, ""), dry_run=dry_run)

    def update(
        self,
        resource: ResourceType,
        obj: JSON,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        manager: str = "",
        dry_run: bool = False,
        unknown: OnUnknown | None = None,
    ) -> Entry:
        """Replaces an object, or only its status; 409 where the resourceVersion or uid in `obj` is not the stored one.

        An update that changes nothing leaves the resourceVersion as it is and is seen by no watch.
        """
        metadata.check_type(resource, obj)
        obj = self._decoded(resource, obj, unknown)
        given = obj.get("metadata") or {}
        namespace = metadata.checked_namespace(resource, given, namespace)
        if name and given.get("name", name) != name:
            why = f"the name of the object ({given['name']}) does not match the name on the URL ({name})"
            raise statuses.bad_request(why)
        with self._lock:
            current = self.get(resource, name or given.get("name", ""), namespace)
            return self._replace(current, obj, subresource, manager, dry_run=dry_run)

    def patch(
        self,
        resource: ResourceType,
        patch: JSON | Operations,
        name: str,
        namespace: str = "",
        *,
        subresource: str = "",
        manager: str = "",
        dry_run: bool = False,
        unknown: OnUnknown | None = None,
    ) -> Entry:
        """Patches an object or its status: a dict is a JSON merge patch, a list a JSON patch.

        A resourceVersion in the patch must be the stored one.
        """
        with self._lock:
            current = self.get(resource, name, namespace)
            try:
                wanted = patching.patched(current.object, patch)
            except patching.PatchError as error:
                raise error.status(resource, name) from None
            wanted = self._decoded(resource, wanted, unknown)
            return self._replace(current, wanted, subresource, manager, dry_run=dry_run)

    def apply(
        self,
        resource: ResourceType,
        config: JSON,
        name: str,
        namespace: str = "",
        *,
        manager: str,
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Entry:
        """Server-side apply by `manager`; creates the object where there is none, unless it is a subresource."""
        if not manager:
            cause = ("fieldManager", "FieldValueRequired", "Required value: is required for apply patch")
            raise statuses.invalid(resource, name, [cause])
        metadata.check_type(resource, config)
        self._decoded(resource, config, _not_in_schema)
        given = config.get("metadata") or {}
        writer = Manager(manager, "Apply", subresource)
        with self._lock:
            current = self._objects[resource].get((namespace, name))
            if current is None:
                return self._apply_new(resource, config, name, namespace, writer, dry_run=dry_run)
            metadata.check_preconditions(resource, current.object, given.get("uid"), given.get("resourceVersion"))
            merged = apply.applied(
                current.object,
                _part(resource, config, subresource),
                writer,
                force=force,
                time=metadata.now(),
                api_version=resource.api_version,
            )
            owners = merged["metadata"]["managedFields"]
            merged = self._decoded(resource, merged, None)
            updated = metadata.for_update(resource, current.object, merged, subresource)
            updated = self._admitted(Write("update", resource, subresource, updated, current.object))
            updated["metadata"] = {**updated["metadata"], "managedFields": owners}
            return self._store(resource, current, updated, dry_run=dry_run)

    def delete(
        self,
        resource: ResourceType,
        name: str,
        namespace: str = "",
        *,
        uid: str | None = None,
        version: str | None = None,
        dry_run: bool = False,
    ) -> Entry:
        """Deletes an object and returns what it was last; 409 where `uid` or `version` is not the stored one.

        An object with finalizers stays, marked with a deletionTimestamp, until an update removes the last of them.
        """
        with self._lock:
            current = self.get(resource, name, namespace)
            metadata.check_preconditions(resource, current.object, uid, version)
            self._admitted(Write("delete", resource, "", current.object, current.object))
            if current.object["metadata"].get("finalizers"):
                marks = {"deletionTimestamp": metadata.now(), "deletionGracePeriodSeconds": 0}
                marked = {**current.object, "metadata": {**marks, **current.object["metadata"]}}
                return self._store(resource, current, marked, dry_run=dry_run)
            return current if dry_run else self._remove(current)

    def delete_collection(self, resource: ResourceType, selector: Selector, *, dry_run: bool = False) -> Entries:
        """Deletes every object in the selection and returns them."""
        with self._lock:
            return [
                self.delete(resource, entry.name, entry.namespace, dry_run=dry_run)
                for entry in self.list(resource, selector)[0]
            ]

    # -- inside

    def _replace(self, current: Entry, wanted: JSON, subresource: str, manager: str, *, dry_run: bool) -> Entry:
        resource, given = current.resource, wanted.get("metadata") or {}
        metadata.check_preconditions(resource, current.object, given.get("uid"), given.get("resourceVersion"))
        updated = metadata.for_update(resource, current.object, wanted, subresource)
        updated = self._admitted(Write("update", resource, subresource, updated, current.object))
        owned = self._owned(current.object, updated, manager, subresource)
        return self._store(resource, current, owned, dry_run=dry_run)

    def _apply_new(
        self,
        resource: ResourceType,
        config: JSON,
        name: str,
        namespace: str,
        writer: Manager,
        *,
        dry_run: bool,
    ) -> Entry:
        if writer.subresource:
            raise statuses.not_found(resource, name)
        part = _part(resource, config, "")
        part["metadata"] = {**(part.get("metadata") or {}), "name": name}
        created = metadata.for_create(resource, self._decoded(resource, part, None), namespace)
        self._check_namespace(resource, created)
        created = self._admitted(Write("create", resource, "", created, None))
        fields = frozenset(managed_fields.values_of(part).keys() & managed_fields.values_of(created).keys())
        owners = managed_fields.Managed({}).given(
            writer, fields, (), time=metadata.now(), api_version=resource.api_version
        )
        created["metadata"] = {**created["metadata"], "managedFields": owners.encoded()}
        return self._store(resource, None, created, dry_run=dry_run)

    def _decoded(self, resource: ResourceType, obj: JSON, unknown: OnUnknown | None) -> JSON:
        found, fields = self.decode(resource, obj)
        if fields and unknown is not None:
            unknown(fields)
        return found

    def _admitted(self, write: Write) -> JSON:
        if not self.admit:
            return write.object
        own: JSON = json.loads(encode(write.object))
        private = Write(write.verb, write.resource, write.subresource, own, write.old)
        for admission in self.admit:
            admission(private)
        return private.object

    def _owned(self, before: JSON | None, after: JSON, manager: str, subresource: str) -> JSON:
        owners = managed_fields.after_update(
            before,
            after,
            Manager(manager or "unknown", "Update", subresource),
            time=metadata.now(),
            api_version=after["apiVersion"],
        )
        return {**after, "metadata": {**after["metadata"], "managedFields": owners}}

    def _store(self, resource: ResourceType, current: Entry | None, obj: JSON, *, dry_run: bool) -> Entry:
        version = current.version if current else self._version
        if current and _same(current.object, obj):
            return current
        if dry_run:
            return Entry(resource, obj, version)
        if current and obj["metadata"].get("deletionTimestamp") and not obj["metadata"].get("finalizers"):
            return self._remove(Entry(resource, obj, version), before=current)
        self._version += 1
        entry = Entry(resource, obj, self._version)
        self._objects[resource][self._key(obj)] = entry
        self._publish(resource, Change(self._version, current, entry))
        return entry

    def _remove(self, last: Entry, before: Entry | None = None) -> Entry:
        self._version += 1
        del self._objects[last.resource][(last.namespace, last.name)]
        self._publish(last.resource, Change(self._version, before or last, None))
        return last.at(self._version)

    def _publish(self, resource: ResourceType, change: Change) -> None:
        self._histories[resource].append(change)
        for watch in self._watches[resource]:
            watch.offer(change)

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


def _not_in_schema(fields: list[str]) -> None:
    why = f"failed to create typed patch object: .{fields[0]}: field not declared in schema"
    raise statuses.StatusError(500, "", why)


def _part(resource: ResourceType, config: JSON, subresource: str) -> JSON:
    if subresource == "status":
        return {key: config[key] for key in ("apiVersion", "kind", "status") if key in config}
    if resource.status:
        return {key: value for key, value in config.items() if key != "status"}
    return dict(config)


def _same(current: JSON, wanted: JSON) -> bool:
    before = {key: value for key, value in current["metadata"].items() if key != "resourceVersion"}
    after = {key: value for key, value in wanted["metadata"].items() if key != "resourceVersion"}
    return before == after and {**current, "metadata": None} == {**wanted, "metadata": None}
