"""What is wrong with one field of an object: the field's path, the kind of error, and a sentence.

Paths and kinds are those of the API server (apimachinery `field.Path` and `field.ErrorType`), so that both answers can
be compared. Details are sentences of this SDK: they state the limit and the value that was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

Problems = Iterator["Problem"]
_SHOWN: Final = 60

_PATH_PART = re.compile(r"\.?([^.\[\]]+)|\[(.*?)\](?=[.\[]|$)")
#: Fields that hold a map: the next part of a path is a key, not a field.
_MAPS: Final = {
    "annotations", "attributes", "capacity", "consumedCapacity", "counters", "labels",
    "nodeAllocatableResourceMappings", "nodeAllocatableResources", "requests",
}  # fmt: skip
#: The capacity of a device is a map. The capacity of a request is an object whose field `requests` is the map.
_CAPACITY_REQUESTS: Final = ("capacity", "requests")

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


class ProblemType(StrEnum):
    """Why a field is refused.

    The API server reports all but the last two as `FieldValue<type>`. It finds the last two when it decodes the object.
    """

    REQUIRED = "Required"
    INVALID = "Invalid"
    NOT_SUPPORTED = "NotSupported"
    DUPLICATE = "Duplicate"
    TOO_LONG = "TooLong"
    TOO_MANY = "TooMany"
    FORBIDDEN = "Forbidden"
    NOT_FOUND = "NotFound"
    TYPE_INVALID = "TypeInvalid"
    UNKNOWN = "Unknown"


#: The types that a server finds when it decodes an object, before it drops disabled fields and validates.
DECODING: Final = frozenset({ProblemType.TYPE_INVALID, ProblemType.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule.

    field: path of the field, such as `spec.devices[3].attributes[foo].string`. Empty for the object itself.
    type: why it is refused, such as TooLong.
    detail: the rest of the sentence, such as `must be at most 64 bytes, has 70`.
    """

    field: str
    type: ProblemType
    detail: str

    def __str__(self) -> str:
        return f"{self.field}: {self.detail}" if self.field else self.detail


@dataclass(frozen=True, slots=True)
class Uncompiled(Problem):
    """A CEL expression that still has to be compiled. The compiler decides whether it is a problem.

    detail: the expression.
    stored: the API server stores the expression already. It may use features whose gates are off today.
    derives: the expression computes an attribute. False: it selects devices.
    """

    stored: bool = False
    derives: bool = False


@dataclass(frozen=True, slots=True)
class UnknownFunction(Problem):
    """A CEL expression calls a function that no release known here has. A later server may accept it."""


def required(field: str, detail: str = "must be set") -> Problem:
    """Return the problem that a value is missing."""
    return Problem(field, ProblemType.REQUIRED, detail)


def invalid(field: str, detail: str) -> Problem:
    """Return the problem that a value breaks a rule of its format or range."""
    return Problem(field, ProblemType.INVALID, detail)


def forbidden(field: str, detail: str) -> Problem:
    """Return the problem that a value may not be set here."""
    return Problem(field, ProblemType.FORBIDDEN, detail)


def not_found(field: str, detail: str) -> Problem:
    """Return the problem that a value refers to something that does not exist."""
    return Problem(field, ProblemType.NOT_FOUND, detail)


def duplicate(field: str, value: object) -> Problem:
    """Return the problem that a value occurs twice."""
    return Problem(field, ProblemType.DUPLICATE, f"{show(value)} was given before")


def not_supported(field: str, value: str, supported: tuple[str, ...]) -> Problem:
    """Return the problem that a value is not one of the supported ones."""
    return Problem(field, ProblemType.NOT_SUPPORTED, f"must be one of {', '.join(supported)}, is {show(value)}")


def too_many(field: str, length: int, limit: int) -> Problem:
    """Return the problem that a list or map has too many items."""
    return Problem(field, ProblemType.TOO_MANY, f"must have at most {limit} items, has {length}")


def too_long(field: str, text: str, limit: int) -> Problems:
    """Yield a problem if `text` has more than `limit` bytes."""
    if (length := byte_length(text)) > limit:
        yield Problem(field, ProblemType.TOO_LONG, f"must be at most {limit} bytes, has {length}")


def byte_length(text: str) -> int:
    """Return the number of bytes in UTF-8, the unit of the limits of the API."""
    return len(text.encode(errors="surrogatepass"))


def show(value: Any) -> str:
    """Return a value for a sentence, shortened to 60 characters."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]}...{text[-1]}"


def join_path(parts: Sequence[str | int]) -> str:
    """Return the path of field names, indexes and keys: `spec.devices[3].attributes[foo].string`."""
    path = ""
    for before, part in zip(("", *parts), parts, strict=False):
        is_key = isinstance(part, int) or (before in _MAPS and (before, part) != _CAPACITY_REQUESTS)
        path += f"[{part}]" if is_key else f".{part}" if path else str(part)
    return path


def split_path(path: str) -> list[str | int]:
    """Return the field names, indexes and keys of a path."""
    parts: list[str | int] = []
    for match in _PATH_PART.finditer(path):
        name, key = match.groups()
        if name is not None:
            parts.append(name)
        else:
            parts.append(int(key) if key.isdecimal() else key)
    return parts


def sentence(problem: Problem, obj: Any) -> str:
    """Return the problem for the author of `obj`: `device gpu-0: attribute model: must be at most 64 bytes, has 70`.

    Parts of the object that have a name are called by it.
    """
    return ": ".join((*_parts(split_path(problem.field), obj), problem.detail))


def _parts(parts: list[str | int], value: Any) -> Iterator[str]:
    while parts[:1] == ["spec"] and len(parts) > 1:
        parts, value = parts[1:], _step(value, "spec")
    rest: list[str | int] = []
    while parts:
        part, *parts = parts
        value = _step(value, part)
        following = parts[0] if parts else None
        if isinstance(following, int) and part in _ITEMS and (name := _name(_step(value, following))):
            label, value, parts = f"{_ITEMS[str(part)]} {name}", _step(value, following), parts[1:]
        elif isinstance(following, str) and part in _KEYS and isinstance(value, dict) and following in value:
            label, value, parts = f"{_KEYS[str(part)]} {following}", value[following], parts[1:]
        else:
            rest.append(part)
            continue
        if rest and rest != ["devices"]:  # a claim keeps its requests under `devices`, which says nothing
            yield join_path(rest)
        yield label
        rest = []
    if rest:
        yield join_path(rest)


def _step(value: Any, part: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(str(part))
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        return value[part]
    return None


def _name(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    return next((value[key] for key in _NAMES if isinstance(value.get(key), str) and value[key]), "")
