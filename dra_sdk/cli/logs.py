"""Log output for people or for machines."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from dra_sdk.errors import SettingsError
from dra_sdk.wire.context import fields

LEVELS = ("debug", "info", "warning", "error")


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (RFC 3339), level, logger, message, thread, request, claim, pod, error."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "thread": record.threadName,
            **fields(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


class TextFormatter(logging.Formatter):
    """One line for people: time, level, thread, message, and what the thread is working on as `key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        text = super().format(record)
        return " ".join([text, *(f"{key}={value}" for key, value in fields().items())])


def set_up_logging(level: str, form: str) -> None:
    """Log to standard error; SettingsError for an unknown level or format."""
    if level not in LEVELS:
        raise SettingsError(f"log level {level!r} is not one of {', '.join(LEVELS)}")
    if form not in {"text", "json"}:
        raise SettingsError(f"log format {form!r} is not text or json")
    handler = logging.StreamHandler()
    plain = TextFormatter("%(asctime)s %(levelname)s %(threadName)s %(message)s")
    handler.setFormatter(JsonFormatter() if form == "json" else plain)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
