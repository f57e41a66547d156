"""Server-side apply: merging what one manager wants into an object without touching what others own.

What a manager applied before and leaves out now is removed, unless someone else owns it too. Setting a field that
another manager owns to another value is a conflict, or with `force` a take-over. Contract: KEP-555.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dra_sdk.tools.simulator import managed_fields, statuses

if TYPE_CHECKING:
    from dra_sdk.model import JSON
    from dra_sdk.tools.simulator.managed_fields import Managed, Manager, Path, Values

Schema = tuple[str, ...]


def applied(live: JSON, config: JSON, manager: Manager, *, force: bool, time: str, api_version: str) -> JSON:
    """The object after `manager` applied `config`; `StatusError` 409 on a conflict without `force`.

    `config` holds only what this endpoint may change. Neither argument is changed.
    """
    managed = managed_fields.Managed.of(live)
    wanted = managed_fields.values_of(config)
    conflicts = _conflicts(managed, manager, managed_fields.values_of(live), wanted)
    if conflicts and not force:
        causes = [(owner.name, managed_fields.shown(path)) for owner, path in conflicts]
        raise statuses.apply_conflict(causes, api_version)
    merged: JSON = _merged(live, _without_identity(config), ())
    stale = managed.fields(manager) - wanted.keys() - managed.fields_of_others(manager)
    for path in sorted(stale, key=len):
        if not _owned_below(path, managed.fields_of_others(manager) | wanted.keys()):
            merged = _removed(merged, path)
    taken = {path for _, path in conflicts}
    owners = managed.given(manager, frozenset(wanted), taken, time=time, api_version=api_version)
    merged["metadata"] = {**merged["metadata"], "managedFields": owners.encoded()}
    return merged


def _without_identity(config: JSON) -> JSON:
    rest = {key: value for key, value in config.items() if key not in {"apiVersion", "kind", "metadata"}}
    metadata = {
        key: value
        for key, value in (config.get("metadata") or {}).items()
        if key in {"labels", "annotations", "finalizers", "ownerReferences"}
    }
    return {**rest, "metadata": metadata} if metadata else rest


def _conflicts(managed: Managed, manager: Manager, live: Values, wanted: Values) -> list[tuple[Manager, Path]]:
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
    if isinstance(live, dict) and isinstance(config, dict) and schema not in managed_fields.ATOMIC:
        merged = dict(live)
        for key, value in config.items():
            merged[key] = _merged(live.get(key), value, (*schema, key))
        return merged
    if isinstance(live, list) and isinstance(config, list):
        if schema in managed_fields.KEYS:
            return _merged_items(live, config, schema)
        if schema in managed_fields.SETS:
            return live + [member for member in config if member not in live]
    return config


def _merged_items(live: list[Any], config: list[Any], schema: Schema) -> list[Any]:
    items = {managed_fields.item_key(schema, item): item for item in live}
    for item in config:
        key = managed_fields.item_key(schema, item)
        items[key] = _merged(items[key], item, (*schema, "[]")) if key in items else item
    return list(items.values())


def _removed(value: Any, path: Path, schema: Schema = ()) -> Any:
    """`value` without the field at `path`; containers that become empty go with it."""
    head, rest = path[0], path[1:]
    if head.startswith("f:"):
        return _removed_field(value, head[2:], rest, schema)
    kept = []
    for item in value:
        if head != _element(head, item, schema):
            kept.append(item)
        elif rest:
            kept.append(_removed(item, rest, (*schema, "[]")))
    return kept


def _removed_field(value: JSON, name: str, rest: Path, schema: Schema) -> JSON:
    if name not in value or (not rest and name in managed_fields.KEYS.get(schema[:-1], ())):
        return value
    shrunk = {key: inner for key, inner in value.items() if key != name}
    if rest:
        below = _removed(value[name], rest, (*schema, name))
        if below or not value[name]:
            shrunk = {key: below if key == name else inner for key, inner in value.items()}
    return shrunk


def _element(head: str, item: Any, schema: Schema) -> str:
    if head.startswith("k:"):
        return managed_fields.item_key(schema, item)
    return f"v:{json.dumps(item)}"
