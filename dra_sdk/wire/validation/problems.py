"""What is wrong with one field of an object, in the terms of the API server.

Source: apimachinery field errors. `field` is the path as the server writes it, `type` what it calls the reason.
Details are sentences of our own that state the limit and what was found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

Problems = Iterator["Problem"]
_SHOWN: Final = 60


class ProblemType(StrEnum):
    """Why a field is refused; the server puts `FieldValue` before all but the last two, which it finds on decoding."""

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


#: What a server finds on decoding, before it drops fields and validates.
DECODING: Final = frozenset({ProblemType.TYPE_INVALID, ProblemType.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule: `spec.devices[3].attributes[foo].string`, TooLong, `must be at most 64 bytes, has 70`."""

    field: str
    type: ProblemType
    detail: str

    def __str__(self) -> str:
        return f"{self.field}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Uncompiled(Problem):
    """A CEL expression (`detail`) that nobody has compiled yet; whoever can decides whether it is a problem.

    `stored` expressions were accepted before, perhaps by a server with other feature gates; `derives` is for one that
    says what an attribute is, where others select devices.
    """

    stored: bool = False
    derives: bool = False


def required(field: str, detail: str = "must be set") -> Problem:
    """A value is missing."""
    return Problem(field, ProblemType.REQUIRED, detail)


def invalid(field: str, detail: str) -> Problem:
    """A value breaks a rule of its format or range."""
    return Problem(field, ProblemType.INVALID, detail)


def forbidden(field: str, detail: str) -> Problem:
    """A value may not be set here."""
    return Problem(field, ProblemType.FORBIDDEN, detail)


def not_found(field: str, detail: str) -> Problem:
    """A value refers to something that does not exist."""
    return Problem(field, ProblemType.NOT_FOUND, detail)


def duplicate(field: str, value: object) -> Problem:
    """A value was there before."""
    return Problem(field, ProblemType.DUPLICATE, f"{show(value)} was given before")


def not_supported(field: str, value: str, supported: tuple[str, ...]) -> Problem:
    """A value is not one of those that exist."""
    return Problem(field, ProblemType.NOT_SUPPORTED, f"must be one of {', '.join(supported)}, is {show(value)}")


def too_many(field: str, found: int, limit: int) -> Problem:
    """A list or map is too large."""
    return Problem(field, ProblemType.TOO_MANY, f"must have at most {limit} items, has {found}")


def too_long(field: str, text: str, limit: int) -> Problems:
    """A problem if `text` has more than `limit` bytes."""
    if (found := byte_length(text)) > limit:
        yield Problem(field, ProblemType.TOO_LONG, f"must be at most {limit} bytes, has {found}")


def byte_length(text: str) -> int:
    """Bytes in UTF-8, which is what limits count."""
    return len(text.encode(errors="surrogatepass"))


def show(value: Any) -> str:
    """A value as it stands in a sentence, cut where it is long."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]}...{text[-1]}"
