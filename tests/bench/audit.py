"""Counts the requests a driver made, from the API server's audit log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class AuditLog:
    """The part of the log that was written since `mark` was last called."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def mark(self) -> None:
        """Forget what was written so far."""
        self._offset = self._path.stat().st_size

    def requests(self, user: str) -> Counter[str]:
        """The requests of `user` since the mark, by what was asked for: `create resourceslices`, `get nodes`."""
        return Counter(_action(event) for event in self._events() if _counts(event, user))

    def _events(self) -> Iterator[dict[str, Any]]:
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if line.endswith(b"\n"):
                    yield json.loads(line)


def _counts(event: dict[str, Any], user: str) -> bool:
    # A watch is logged when it begins and when it ends; everything else when it was answered.
    stage = "ResponseStarted" if event["verb"] == "watch" else "ResponseComplete"
    return bool(event["user"]["username"] == user and event["stage"] == stage)


def _action(event: dict[str, Any]) -> str:
    target = event.get("objectRef", {}).get("resource") or str(event["requestURI"]).partition("?")[0]
    return f"{event['verb']} {target}"
