"""What the driver remembers of claims: a file for each claim, shared by its instances, and one lock."""

from __future__ import annotations

import fcntl
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.tools.conformance.mutants import Faults

JSON = dict[str, Any]


class State:
    def __init__(self, directory: Path, faults: Faults) -> None:
        self._directory = directory
        self._faults = faults
        self._memory: dict[str, JSON] = {}
        self._busy = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self._busy, (self._directory / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def get(self, uid: str) -> JSON | None:
        return self.all().get(uid)

    def all(self) -> dict[str, JSON]:
        if "memory-only" in self._faults:
            return dict(self._memory)
        return {path.stem: json.loads(path.read_text()) for path in self._directory.glob("*.json")}

    def put(self, uid: str, entry: JSON) -> None:
        if "memory-only" in self._faults:
            self._memory[uid] = entry
            return
        partial = self._directory / f".{_name(uid)}"
        partial.write_text(json.dumps(entry))
        partial.chmod(0o666 if "open-data" in self._faults else 0o600)
        partial.rename(self._path(uid))

    def remove(self, uid: str) -> None:
        self._memory.pop(uid, None)
        self._path(uid).unlink(missing_ok=True)

    def _path(self, uid: str) -> Path:
        return self._directory / f"{_name(uid)}.json"


def _name(uid: str) -> str:
    """A UID from a request as a part of a file name."""
    return "".join(char if char.isalnum() or char == "-" else "_" for char in uid)[:64] or "none"
