"""What the current thread is working on: request, claim and pod for log lines, and when the call came in.

Set by whoever takes a call apart. Log formatters read the fields, so lines that a driver's hook logs carry them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar, Token
from time import monotonic_ns

_ARRIVAL: ContextVar[int] = ContextVar("dra_sdk_arrival")
_FIELDS: ContextVar[Mapping[str, str]] = ContextVar("dra_sdk_log_fields")
_NONE: Mapping[str, str] = {}


def fields() -> Mapping[str, str]:
    """The fields that are bound in this thread."""
    return _FIELDS.get(_NONE)


class Bound:
    """Fields that are bound inside a `with`."""

    __slots__ = ("_more", "_token")
    _token: Token[Mapping[str, str]]

    def __init__(self, more: Mapping[str, str]) -> None:
        self._more = more

    def __enter__(self) -> None:
        self._token = _FIELDS.set({**_FIELDS.get(_NONE), **self._more})

    def __exit__(self, *_: object) -> None:
        _FIELDS.reset(self._token)


def bound(**more: str) -> Bound:
    """Add fields to every log line of this thread inside the `with`."""
    return Bound(more)


class Arrived:
    """The call that this thread works on inside a `with` came in when this was made."""

    __slots__ = ("_at", "_token")
    _token: Token[int]

    def __init__(self) -> None:
        self._at = monotonic_ns()

    def __enter__(self) -> None:
        self._token = _ARRIVAL.set(self._at)

    def __exit__(self, *_: object) -> None:
        _ARRIVAL.reset(self._token)


def arrival() -> int:
    """When the call came in that this thread works on, in nanoseconds of the monotonic clock; now without one."""
    return _ARRIVAL.get(0) or monotonic_ns()
