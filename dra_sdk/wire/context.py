"""What the current thread is working on, for log lines: request, claim, pod.

Set by whoever takes a call apart, read by the log formatters; also lines that a driver's hook logs carry it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_FIELDS: ContextVar[Mapping[str, str]] = ContextVar("dra_sdk_log_fields")


def fields() -> Mapping[str, str]:
    """The fields that are bound in this thread."""
    return _FIELDS.get({})


@contextmanager
def bound(**more: str) -> Iterator[None]:
    """Add fields to every log line of this thread inside the `with`."""
    token = _FIELDS.set({**fields(), **more})
    try:
        yield
    finally:
        _FIELDS.reset(token)
