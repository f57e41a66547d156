"""Changed copies of API objects, for trying what a change does."""

from __future__ import annotations

from typing import Any

from dra_sdk.model import JSON

Path = tuple[str | int, ...]
"""Keys and indices from the object down, such as `("spec", "devices", "requests", 0)`."""
REMOVED: Any = object()


def changed(obj: JSON, path: Path, value: Any) -> JSON:
    """The object with another value at a path, or without it; what is not on the path is shared."""
    found: JSON = _changed(obj, path, value)
    return found


def _changed(value: Any, path: Path, wanted: Any) -> Any:
    if not path:
        return wanted
    key, *rest = path
    if isinstance(value, list):
        assert isinstance(key, int)
        inner = _changed(value[key], tuple(rest), wanted)
        return value[:key] + ([] if inner is REMOVED else [inner]) + value[key + 1 :]
    value = value or {}
    inner = _changed(value.get(key), tuple(rest), wanted)
    if inner is REMOVED:
        return {name: each for name, each in value.items() if name != key}
    return {**value, key: inner}


def value_at(obj: JSON, path: Path) -> Any:
    """The value at a path, None where there is none."""
    value: Any = obj
    for key in path:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return None
    return value


def text_of(path: Path) -> str:
    """A path as the API server writes it: `spec.devices.requests[0].exactly.capacity.requests[dra.cpu/cpu]`."""
    return "".join(f".{each}" if str(each).isalpha() else f"[{each}]" for each in path).lstrip(".")


def request_path(claim: JSON, request: str) -> Path:
    """Where a claim asks for what `request` or `request/subrequest` names: at its `exactly` or its alternative."""
    name, _, alternative = request.partition("/")
    requests = claim["spec"]["devices"]["requests"]
    index = next(at for at, each in enumerate(requests) if each["name"] == name)
    start: Path = ("spec", "devices", "requests", index)
    if not alternative:
        return (*start, "exactly")
    listed = requests[index]["firstAvailable"]
    return (*start, "firstAvailable", next(at for at, each in enumerate(listed) if each["name"] == alternative))


def constraint_path(index: int) -> Path:
    """Where a claim has a constraint."""
    return ("spec", "devices", "constraints", index)
