"""What the current thread is working on, for log lines: request, claim, pod.

Set by whoever takes a call apart, read by the log formatters; also lines that a driver's hook logs carry it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar, Token

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
