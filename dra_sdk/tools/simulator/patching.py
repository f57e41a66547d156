"""JSON merge patch (RFC 7386), JSON patch (RFC 6902) and the media types of PATCH.

A real server has strategic merge patches too; this one answers them with 415.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from dra_sdk.errors import DraError
from dra_sdk.tools.simulator import statuses

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
MEDIA_TYPES = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)


class PatchError(DraError):
    """A patch does not fit the object."""


def patched(target: Any, patch: Any) -> Any:
    """Return `target` after a merge patch (an object) or a JSON patch (a list).

    `PatchError` if it does not fit, `StatusError` 400 if it is malformed.
    """
    return json_patched(target, patch) if isinstance(patch, list) else merge_patched(target, patch)


def merge_patched(target: Any, patch: Any) -> Any:
    """Return a copy of `target` with `patch` merged in: null removes a field, objects merge, other values replace."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patched(merged.get(key), value)
    return merged


def json_patched(target: Any, operations: Sequence[Any]) -> Any:
    """Return a copy of `target` after all operations of a JSON patch; errors as of `patched`."""
    document = {"": copy.deepcopy(target)}
    for operation in operations:
        try:
            name, path = operation["op"], ["", *_pointer(operation["path"])]
            value = operation["value"] if name in {"add", "replace", "test"} else None
            source = ["", *_pointer(operation["from"])] if name in {"move", "copy"} else []
        except (KeyError, TypeError) as error:
            raise statuses.bad_request(f"an operation lacks {error}") from None
        _operate(document, name, path, value, source)
    return document[""]


def _operate(document: dict[str, Any], name: str, path: list[str], value: Any, source: list[str]) -> None:
    match name:
        case "add":
            _add(document, path, value)
        case "remove":
            _remove(document, path)
        case "replace":
            _remove(document, path)
            _add(document, path, value)
        case "move":
            _add(document, path, _remove(document, source))
        case "copy":
            _add(document, path, copy.deepcopy(_value_at(document, source)))
        case "test":
            if _value_at(document, path) != value:
                raise PatchError(f"testing path {_text(path)} failed")
        case _:
            raise statuses.bad_request(f"unknown operation {name!r}")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise statuses.bad_request(f"{text!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _text(path: Sequence[str]) -> str:
    return "/".join(path)


def _value_at(document: Any, path: Sequence[str]) -> Any:
    value = document
    for part in path:
        value = _child(value, part, path)
    return value


def _child(value: Any, part: str, path: Sequence[str]) -> Any:
    try:
        return value[_index(part, path)] if isinstance(value, list) else value[part]
    except (LookupError, TypeError):
        raise PatchError(f"no value at {_text(path)}") from None


def _index(part: str, path: Sequence[str]) -> int:
    if not part.isdecimal():
        raise PatchError(f"{_text(path)}: {part!r} is not an index")
    return int(part)


def _add(document: Any, path: Sequence[str], value: Any) -> None:
    parent, last = _value_at(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        index = len(parent) if last == "-" else _index(last, path)
        if index > len(parent):
            raise PatchError(f"{_text(path)}: the list has {len(parent)} items")
        parent.insert(index, value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise PatchError(f"no value at {_text(path[:-1])}")


def _remove(document: Any, path: Sequence[str]) -> Any:
    removed, parent = _value_at(document, path), _value_at(document, path[:-1])
    del parent[int(path[-1]) if isinstance(parent, list) else path[-1]]
    return removed
