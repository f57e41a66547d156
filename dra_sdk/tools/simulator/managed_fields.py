"""Who owns which field of an object (`metadata.managedFields`), and server-side apply, which is built on it.

A field is a path such as ("f:status", "f:devices", 'k:{"device":"gpu-0",…}', "f:data"): `f:` names a field, `k:` an
item of an associative list by its keys, `v:` a member of a set. Other lists are owned as one value.
Contract: KEP-555; sigs.k8s.io/structured-merge-diff.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.tools.simulator import statuses

Path = tuple[str, ...]
FieldValues = dict[Path, Any]
"""The fields of an object by path. An item of an associative list is a field too; its value is `ITEM`."""
Schema = tuple[str, ...]
"""Where a value lies in objects of any kind: the names of its fields, with "[]" for any item of a list."""

LIST_KEYS: dict[Schema, tuple[str, ...]] = {
    ("metadata", "ownerReferences"): ("uid",),
    ("status", "conditions"): ("type",),
    ("status", "devices"): ("driver", "device", "pool", "shareID"),
    ("status", "devices", "[]", "conditions"): ("type",),
    ("status", "reservedFor"): ("uid",),
}
SETS = frozenset({("metadata", "finalizers")})
ATOMIC = frozenset(
    {("status", "devices", "[]", "data"), ("status", "allocation", "nodeSelector"), ("spec", "nodeSelector")}
)
_UNOWNED_METADATA = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"}
    | {"selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName"}
)
_APPLIED_METADATA = frozenset({"labels", "annotations", "finalizers", "ownerReferences"})
ITEM = object()


@dataclass(frozen=True)
class Manager:
    """One writer of an object.

    name: the field manager.
    operation: how it writes, `Apply` or `Update`.
    subresource: through which subresource it writes, "" for the object itself.
    """

    name: str
    operation: str
    subresource: str = ""


@dataclass(frozen=True)
class Ownership:
    """The fields that one manager owns.

    fields: their paths.
    time: of the manager's last change, RFC 3339.
    api_version: the API version in which the paths are meant.
    """

    fields: frozenset[Path]
    time: str
    api_version: str


class ManagedFields:
    """The owners of one object's fields; immutable, each change gives a new one."""

    def __init__(self, owners: dict[Manager, Ownership]) -> None:
        self.owners = owners

    @classmethod
    def of(cls, obj: JSON) -> ManagedFields:
        """Read `metadata.managedFields`."""
        owners: dict[Manager, Ownership] = {}
        for entry in obj["metadata"].get("managedFields", []):
            manager = Manager(entry["manager"], entry["operation"], entry.get("subresource", ""))
            fields = frozenset(_from_tree(entry["fieldsV1"]))
            owners[manager] = Ownership(fields, entry["time"], entry["apiVersion"])
        return cls(owners)

    def fields(self, manager: Manager) -> frozenset[Path]:
        """Return the fields of this manager."""
        owned = self.owners.get(manager)
        return owned.fields if owned else frozenset()

    def fields_of_others(self, manager: Manager) -> frozenset[Path]:
        """Return the fields of all other managers."""
        return frozenset().union(*(own.fields for other, own in self.owners.items() if other != manager))

    def with_fields(self, manager: Manager, owns: Ownership, taken: Iterable[Path]) -> ManagedFields:
        """Return the owners after `manager` owns exactly the fields of `owns`, and no other one any of `taken`."""
        lost = frozenset(taken)
        owners: dict[Manager, Ownership] = {}
        for other, owned in self.owners.items():
            left = owned.fields - lost if other != manager else owns.fields
            if left == owned.fields:
                owners[other] = owned
            elif left and other != manager:
                owners[other] = Ownership(left, owned.time, owned.api_version)
        if owns.fields and manager not in owners:
            owners[manager] = owns
        return ManagedFields(owners)

    def encoded(self) -> list[JSON]:
        """Return them as `metadata.managedFields`."""
        entries = []
        for manager, owned in self.owners.items():
            entry = {
                "manager": manager.name,
                "operation": manager.operation,
                "apiVersion": owned.api_version,
                "time": owned.time,
                "fieldsType": "FieldsV1",
                "fieldsV1": _to_tree(owned.fields),
            }
            if manager.subresource:
                entry["subresource"] = manager.subresource
            entries.append(entry)
        return entries


def _to_tree(fields: frozenset[Path]) -> JSON:
    tree: JSON = {}
    for path in sorted(fields):
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        if path[-1].startswith("k:"):
            node["."] = {}
    return tree


def _from_tree(tree: JSON, path: Path = ()) -> Iterable[Path]:
    for part, below in tree.items():
        if part == ".":
            yield path
        elif below:
            yield from _from_tree(below, (*path, part))
        else:
            yield (*path, part)


# -- fields


def fields_of(obj: JSON) -> FieldValues:
    """Return every field of an object that can have an owner."""
    owned: FieldValues = {}
    for key, value in obj.items():
        if key == "metadata":
            ownable = {name: inner for name, inner in value.items() if name not in _UNOWNED_METADATA}
            if ownable:
                _collect(ownable, (f"f:{key}",), (key,), owned)
        elif key not in {"apiVersion", "kind"}:
            _collect(value, (f"f:{key}",), (key,), owned)
    return owned


def _collect(value: Any, path: Path, schema: Schema, owned: FieldValues) -> None:
    if isinstance(value, dict) and value and schema not in ATOMIC:
        for key, inner in value.items():
            _collect(inner, (*path, f"f:{key}"), (*schema, key), owned)
    elif isinstance(value, list) and schema in LIST_KEYS:
        for item in value:
            at = (*path, item_key(schema, item))
            owned[at] = ITEM
            for key, inner in item.items():
                _collect(inner, (*at, f"f:{key}"), (*schema, "[]", key), owned)
    elif isinstance(value, list) and schema in SETS:
        owned.update({(*path, f"v:{json.dumps(member)}"): member for member in value})
    else:
        owned[path] = value


def item_key(schema: Schema, item: JSON) -> str:
    """Return the path element of an item of an associative list, without absent keys such as a missing `shareID`."""
    keys = {key: item[key] for key in sorted(LIST_KEYS[schema]) if item.get(key) is not None}
    return "k:" + json.dumps(keys, separators=(",", ":"))


def path_text(path: Path) -> str:
    """Return a path as error messages have it: `.status.devices[device="gpu-0",driver="…"].data`."""
    text = ""
    for part in path:
        kind, _, rest = part.partition(":")
        if kind == "k":
            keys = json.loads(rest)
            text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in keys.items()) + "]"
        else:
            text += f".{rest}" if kind == "f" else f"[={rest}]"
    return text


# -- writes


def after_update(before: JSON | None, after: JSON, manager: Manager, time: str) -> list[JSON]:
    """Return `managedFields` after a create or update: the fields that it changed belong to the writer alone."""
    managed = ManagedFields.of(before) if before else ManagedFields({})
    old, new = (fields_of(before) if before else {}), fields_of(after)
    changed = {path for path, value in new.items() if path not in old or old[path] != value}
    removed = old.keys() - new.keys()
    owns = Ownership((managed.fields(manager) | changed) - removed, time, after["apiVersion"])
    return managed.with_fields(manager, owns, changed | removed).encoded()


def applied(live: JSON, config: JSON, manager: Manager, time: str, *, force: bool) -> JSON:
    """Return the object after `manager` applied `config`, which holds only fields that this endpoint may change.

    A field that the manager applied before and now leaves out is removed, unless another manager owns it too. A field
    that another manager owns with another value is a conflict: `StatusError` 409, or with `force` the field changes
    hands. Neither argument is changed.
    """
    managed = ManagedFields.of(live)
    wanted = fields_of(config)
    conflicts = _conflicts(managed, manager, fields_of(live), wanted)
    if conflicts and not force:
        causes = [(owner.name, path_text(path)) for owner, path in conflicts]
        raise statuses.apply_conflict(causes, live["apiVersion"])
    merged: JSON = _merged(live, _appliable(config), ())
    stale = managed.fields(manager) - wanted.keys() - managed.fields_of_others(manager)
    for path in sorted(stale, key=len):
        if not _owned_below(path, managed.fields_of_others(manager) | wanted.keys()):
            merged = _removed(merged, path)
    owns = Ownership(frozenset(wanted), time, live["apiVersion"])
    owners = managed.with_fields(manager, owns, {path for _, path in conflicts})
    merged["metadata"] = {**merged["metadata"], "managedFields": owners.encoded()}
    return merged


def _appliable(config: JSON) -> JSON:
    """Return `config` without what identifies the object."""
    rest = {key: value for key, value in config.items() if key not in {"apiVersion", "kind", "metadata"}}
    metadata = {key: value for key, value in (config.get("metadata") or {}).items() if key in _APPLIED_METADATA}
    return {**rest, "metadata": metadata} if metadata else rest


def _conflicts(
    managed: ManagedFields, manager: Manager, live: FieldValues, wanted: FieldValues
) -> list[tuple[Manager, Path]]:
    return [
        (owner, path)
        for owner, owned in managed.owners.items()
        if owner != manager
        for path in sorted(owned.fields & wanted.keys())
        if live.get(path) != wanted[path]
    ]


def _owned_below(path: Path, owned: frozenset[Path]) -> bool:
    return any(other[: len(path)] == path for other in owned)


def _merged(live: Any, config: Any, schema: Schema) -> Any:
    if isinstance(live, dict) and isinstance(config, dict) and schema not in ATOMIC:
        merged = dict(live)
        for key, value in config.items():
            merged[key] = _merged(live.get(key), value, (*schema, key))
        return merged
    if isinstance(live, list) and isinstance(config, list):
        if schema in LIST_KEYS:
            return _merged_items(live, config, schema)
        if schema in SETS:
            return live + [member for member in config if member not in live]
    return config


def _merged_items(live: list[Any], config: list[Any], schema: Schema) -> list[Any]:
    items = {item_key(schema, item): item for item in live}
    for item in config:
        key = item_key(schema, item)
        items[key] = _merged(items[key], item, (*schema, "[]")) if key in items else item
    return list(items.values())


def _removed(value: Any, path: Path, schema: Schema = ()) -> Any:
    """Return `value` without the field at `path`; containers that become empty are removed too."""
    head, rest = path[0], path[1:]
    if head.startswith("f:"):
        return _removed_field(value, head[2:], rest, schema)
    left = []
    for item in value:
        if head != _path_element(head, item, schema):
            left.append(item)
        elif rest:
            left.append(_removed(item, rest, (*schema, "[]")))
    return left


def _removed_field(value: JSON, name: str, rest: Path, schema: Schema) -> JSON:
    if name not in value or (not rest and name in LIST_KEYS.get(schema[:-1], ())):
        return value
    if rest:
        below = _removed(value[name], rest, (*schema, name))
        if below or not value[name]:
            return {**value, name: below}
    return {key: inner for key, inner in value.items() if key != name}


def _path_element(like: str, item: Any, schema: Schema) -> str:
    """Return the path element of a list's item, of the same sort as `like`."""
    return item_key(schema, item) if like.startswith("k:") else f"v:{json.dumps(item)}"
