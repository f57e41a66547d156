"""Fields of an object as paths: `spec.devices[3].attributes[foo].string`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

_TOKEN = re.compile(r"\.?([^.\[\]]+)|\[(.*?)\](?=[.\[]|$)")
#: Fields whose value is a map, so that what follows is a key and no field.
_MAPS: Final = {
    "annotations", "attributes", "capacity", "consumedCapacity", "counters", "labels",
    "nodeAllocatableResourceMappings", "nodeAllocatableResources", "requests",
}  # fmt: skip
#: A device has a map of capacities, a request has an object with one.
_WANTED_CAPACITY: Final = ("capacity", "requests")


def join(tokens: Sequence[str | int]) -> str:
    """A path, from names of fields, indexes and keys."""
    path = ""
    for before, token in zip(("", *tokens), tokens, strict=False):
        is_key = isinstance(token, int) or (before in _MAPS and (before, token) != _WANTED_CAPACITY)
        path += f"[{token}]" if is_key else f".{token}" if path else str(token)
    return path


def split(path: str) -> list[str | int]:
    """The names of fields, indexes and keys of a path."""
    return list(_split(path))


def _split(path: str) -> Iterator[str | int]:
    for match in _TOKEN.finditer(path):
        name, key = match.groups()
        if name is not None:
            yield name
        else:
            yield int(key) if key.isdecimal() else key
