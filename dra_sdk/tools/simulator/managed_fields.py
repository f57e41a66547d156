"""Who owns which field: the bookkeeping behind server-side apply (`metadata.managedFields`, FieldsV1).

A field is a path such as ("f:status", "f:devices", 'k:{"device":"gpu-0",…}', "f:data"): `f:` names a field, `k:` an
item of an associative list by its keys, `v:` a member of a set. Lists that the schema does not name are owned whole.
Contract: KEP-555; sigs.k8s.io/structured-merge-diff.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra_sdk.model import JSON

Path = tuple[str, ...]
Values = dict[Path, Any]
"""The fields of an object: the path of each, with its value. An item of an associative list is itself a field."""

KEYS: dict[tuple[str, ...], tuple[str, ...]] = {
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
_UNOWNED = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"}
    | {"selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName"}
)
ITEM = object()
"""The value of a path that stands for an item of an associative list."""


def item_key(schema: tuple[str, ...], item: JSON) -> str:
    """The path element of an item of an associative list; absent keys are left out, as with `shareID`."""
    keys = {key: item[key] for key in sorted(KEYS[schema]) if item.get(key) is not None}
    return "k:" + json.dumps(keys, separators=(",", ":"))


def values_of(obj: JSON) -> Values:
    """Every ownable field of an object."""
    found: Values = {}
    for key, value in obj.items():
        if key in {"apiVersion", "kind"}:
            continue
        if key == "metadata":
            value = {name: inner for name, inner in value.items() if name not in _UNOWNED}  # noqa: PLW2901
            if not value:
                continue
        _collect(value, (f"f:{key}",), (key,), found)
    return found


def _collect(value: Any, path: Path, schema: tuple[str, ...], found: Values) -> None:
    if isinstance(value, dict) and value and schema not in ATOMIC:
        for key, inner in value.items():
            _collect(inner, (*path, f"f:{key}"), (*schema, key), found)
    elif isinstance(value, list) and schema in KEYS:
        for item in value:
            at = (*path, item_key(schema, item))
            found[at] = ITEM
            for key, inner in item.items():
                _collect(inner, (*at, f"f:{key}"), (*schema, "[]", key), found)
    elif isinstance(value, list) and schema in SETS:
        found.update({(*path, f"v:{json.dumps(member)}"): member for member in value})
    else:
        found[path] = value


def shown(path: Path) -> str:
    """A path as error messages print it: `.status.devices[device="gpu-0",driver="…"].data`."""
    text = ""
    for part in path:
        kind, _, rest = part.partition(":")
        if kind == "k":
            keys = json.loads(rest)
            text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in keys.items()) + "]"
        else:
            text += f".{rest}" if kind == "f" else f"[={rest}]"
    return text


@dataclass(frozen=True)
class Manager:
    """One writer of an object: its name, how it writes (`Apply` or `Update`) and through which subresource."""

    name: str
    operation: str
    subresource: str = ""


@dataclass(frozen=True)
class Ownership:
    """What one manager owns, since when, in terms of which API version."""

    fields: frozenset[Path]
    time: str
    api_version: str


class Managed:
    """The ownership table of one object; immutable, each change gives a new one."""

    def __init__(self, owners: dict[Manager, Ownership]) -> None:
        self.owners = owners

    @classmethod
    def of(cls, obj: JSON) -> Managed:
        """Reads `metadata.managedFields`."""
        owners: dict[Manager, Ownership] = {}
        for entry in obj["metadata"].get("managedFields", []):
            manager = Manager(entry["manager"], entry["operation"], entry.get("subresource", ""))
            fields = frozenset(_from_tree(entry["fieldsV1"]))
            owners[manager] = Ownership(fields, entry["time"], entry["apiVersion"])
        return cls(owners)

    def fields(self, manager: Manager) -> frozenset[Path]:
        """What this manager owns."""
        owned = self.owners.get(manager)
        return owned.fields if owned else frozenset()

    def fields_of_others(self, manager: Manager) -> frozenset[Path]:
        """What anyone else owns."""
        return frozenset().union(*(own.fields for other, own in self.owners.items() if other != manager))

    def given(
        self, manager: Manager, fields: frozenset[Path], taken: Iterable[Path], *, time: str, api_version: str
    ) -> Managed:
        """`manager` owns exactly `fields` from now on, and everyone else loses `taken`."""
        lost = frozenset(taken)
        owners: dict[Manager, Ownership] = {}
        for other, owned in self.owners.items():
            kept = owned.fields - lost if other != manager else fields
            if kept == owned.fields:
                owners[other] = owned
            elif kept and other != manager:
                owners[other] = Ownership(kept, owned.time, owned.api_version)
        if fields and manager not in owners:
            owners[manager] = Ownership(fields, time, api_version)
        return Managed(owners)

    def encoded(self) -> list[JSON]:
        """As `metadata.managedFields`."""
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


def after_update(before: JSON | None, after: JSON, manager: Manager, *, time: str, api_version: str) -> list[JSON]:
    """`managedFields` after a create or update: what changed now belongs to the writer, and to nobody else."""
    managed = Managed.of(before) if before else Managed({})
    old, new = (values_of(before) if before else {}), values_of(after)
    changed = {path for path, value in new.items() if path not in old or old[path] != value}
    removed = old.keys() - new.keys()
    fields = (managed.fields(manager) | changed) - removed
    return managed.given(manager, fields, changed | removed, time=time, api_version=api_version).encoded()


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
