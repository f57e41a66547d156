"""Log lines for people or for machines, with the request, claim and pod that the thread handles.

Log lines contain names and values that users choose. So characters that move a terminal's cursor or reverse its text
are escaped, and the length of a line is limited.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from typing import Final

from dra_sdk.errors import one_line

MESSAGE_LIMIT: Final = 8192  # characters
_FIELDS: ContextVar[Mapping[str, str]] = ContextVar("dra_sdk_log_fields")
_NO_FIELDS: Mapping[str, str] = {}


class LogFields:
    """Adds fields to every log line of this thread inside a `with`, also to those of a driver's hooks."""

    __slots__ = ("_more", "_token")
    _token: Token[Mapping[str, str]]

    def __init__(self, **more: str) -> None:
        self._more = more

    def __enter__(self) -> None:
        self._token = _FIELDS.set({**_FIELDS.get(_NO_FIELDS), **self._more})

    def __exit__(self, *_: object) -> None:
        _FIELDS.reset(self._token)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (RFC 3339), level, logger, message, thread, request, claim, pod, error."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": one_line(record.getMessage(), MESSAGE_LIMIT),
            "thread": record.threadName,
            **_fields(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


class TextFormatter(logging.Formatter):
    """One line for people: time, level, thread, message, and the fields as `key=value`.

    With `traces`, a traceback follows on lines of its own.
    """

    def __init__(self, *, traces: bool = True) -> None:
        super().__init__()
        self._traces = traces

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        parts = [
            self.formatTime(record),
            record.levelname,
            str(record.threadName),
            one_line(record.getMessage(), MESSAGE_LIMIT),
            *(f"{key}={value}" for key, value in _fields().items()),
        ]
        line = " ".join(parts)
        if not record.exc_info or not self._traces:
            return line
        trace = self.formatException(record.exc_info).splitlines()
        return "\n".join([line, *(one_line(row, MESSAGE_LIMIT) for row in trace)])


def set_up_logging(level: str, form: str, *, traces: bool = True) -> None:
    """Log to standard error from `level` on, with the form `text` or `json` (`Settings.log_level`, `log_format`).

    Without `traces`, text has no tracebacks.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(traces=traces))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _fields() -> dict[str, str]:
    return {key: one_line(value, MESSAGE_LIMIT) for key, value in _FIELDS.get(_NO_FIELDS).items()}
