"""Which files this process has open."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def times_open(path: Path) -> int:
    """How often it has this file open; what else it opens and closes meanwhile is the doing of other threads."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(each.readlink())
    return found.count(path)
