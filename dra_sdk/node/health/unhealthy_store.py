"""The unhealthy devices in one small file, so that a restart neither removes a taint nor changes its time.

Without it a driver would publish its pools without taints until its first health report, and pods could get a device
that is known to be broken.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dra_sdk.errors import StateError
from dra_sdk.node.files import Files, read
from dra_sdk.node.health.reports import Key
from dra_sdk.node.locks import NamedLocks

log = logging.getLogger(__name__)
FORMAT: Final = 1
Unhealthy = Mapping[Key, datetime]
"""Devices that are unhealthy, by pool and name, and since when (UTC, whole seconds)."""


UNHEALTHY_FILE: Final = "unhealthy.json"
"""Its name in a driver's plugin data directory."""


class UnhealthyStore:
    """The file. If it is lost, the next reports bring its content back, so its problems are only logged.

    path: the file; the processes of a rolling update share it.
    files: writes it.
    locks: locks it for the time of a write.
    """

    def __init__(self, path: Path, files: Files, locks: NamedLocks | None = None) -> None:
        self._path = path
        self._files = files
        self._locks = locks or NamedLocks()

    def load(self) -> dict[Key, datetime]:
        """The saved devices; none if there is no readable file."""
        try:
            return decode(read(self._path), str(self._path))
        except FileNotFoundError:
            return {}
        except (OSError, StateError) as error:
            log.error("%s; taints of unhealthy devices return with their next report", error)
            return {}

    def save(self, unhealthy: Unhealthy) -> None:
        """Save `unhealthy`."""
        try:
            with self._locks.hold([f"file/{self._path.name}"]):
                self._files.write(self._path, encode(unhealthy))
        except OSError as error:
            log.error("cannot write %s: %s; a restart will lift taints too early", self._path, error)


def encode(unhealthy: Unhealthy) -> bytes:
    """The file's content."""
    devices = [
        {"pool": pool, "device": device, "since": since.strftime("%Y-%m-%dT%H:%M:%SZ")}
        for (pool, device), since in sorted(unhealthy.items())
    ]
    return json.dumps({"version": FORMAT, "unhealthy": devices}, indent=1).encode() + b"\n"


def decode(content: bytes, source: str) -> dict[Key, datetime]:
    """Read a file's content; StateError names `source`."""
    try:
        found = json.loads(content)
        if found["version"] != FORMAT:
            raise StateError(f"{source} has format {found['version']!r}, this release reads {FORMAT}")
        return {_key(each): _time(each["since"]) for each in found["unhealthy"]}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise StateError(f"{source} does not hold what was written there: {type(error).__name__}: {error}") from error


def _key(entry: Mapping[str, Any]) -> Key:
    return str(entry["pool"]), str(entry["device"])


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
