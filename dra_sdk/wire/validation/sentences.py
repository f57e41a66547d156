"""Problems in the words of whoever wrote the object: `device gpu-0: attribute model: must be at most 64 bytes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dra_sdk.wire.validation.fields import join, split
from dra_sdk.wire.validation.problems import Problem

_ITEMS: Final[Mapping[str, str]] = {
    "devices": "device",
    "requests": "request",
    "firstAvailable": "alternative",
    "sharedCounters": "counter set",
    "consumesCounters": "counter set",
    "results": "result",
    "taints": "taint",
}
_KEYS: Final[Mapping[str, str]] = {"attributes": "attribute", "capacity": "capacity", "counters": "counter"}
_NAMES: Final = ("name", "counterSet", "request", "key", "device")


def sentence(problem: Problem, obj: Any) -> str:
    """One sentence that names the parts of `obj` on the way to the field, where they have names."""
    return ": ".join((*_parts(split(problem.field), obj), problem.detail))


def _parts(tokens: list[str | int], value: Any) -> Iterator[str]:
    while tokens[:1] == ["spec"] and len(tokens) > 1:
        tokens, value = tokens[1:], _step(value, "spec")
    rest: list[str | int] = []
    while tokens:
        token, *tokens = tokens
        value = _step(value, token)
        following = tokens[0] if tokens else None
        if isinstance(following, int) and token in _ITEMS and (name := _name(_step(value, following))):
            label, value, tokens = f"{_ITEMS[str(token)]} {name}", _step(value, following), tokens[1:]
        elif isinstance(following, str) and token in _KEYS and isinstance(value, dict) and following in value:
            label, value, tokens = f"{_KEYS[str(token)]} {following}", value[following], tokens[1:]
        else:
            rest.append(token)
            continue
        if rest and rest != ["devices"]:  # a claim keeps its requests under `devices`, which tells nobody anything
            yield join(rest)
        yield label
        rest = []
    if rest:
        yield join(rest)


def _step(value: Any, token: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(str(token))
    if isinstance(value, list) and isinstance(token, int) and token < len(value):
        return value[token]
    return None


def _name(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    return next((value[key] for key in _NAMES if isinstance(value.get(key), str) and value[key]), "")
