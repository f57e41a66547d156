"""The unhealthy devices in one small file, so that a restart neither removes a taint nor changes its time.

Without it a driver would publish its pools without taints until its first health report, and pods could get a device
that is known to be broken.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dra_sdk.errors import StateError
from dra_sdk.node.files import Files, read
from dra_sdk.node.health.reports import Key
from dra_sdk.node.locks import NamedLocks

log = logging.getLogger(__name__)
FORMAT: Final = 1
DEFAULT_TAINT: Final = "unhealthy"
"""The taint of a device for which the driver names none."""
Unhealthy = Mapping[Key, Mapping[str, datetime]]
"""The taints of unhealthy devices, by pool and name, each with its time (UTC, whole seconds)."""

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

    def load(self) -> dict[Key, Mapping[str, datetime]]:
        """Return the saved devices; none if there is no readable file."""
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
    """Return the file's content: an entry for each taint. The default taint is not named, as in earlier releases."""
    devices = [
        {"pool": pool, "device": device, "since": since.strftime("%Y-%m-%dT%H:%M:%SZ")}
        | ({} if taint == DEFAULT_TAINT else {"taint": taint})
        for (pool, device), taints in sorted(unhealthy.items())
        for taint, since in sorted(taints.items())
    ]
    return json.dumps({"version": FORMAT, "unhealthy": devices}, indent=1).encode() + b"\n"


def decode(content: bytes, source: str) -> dict[Key, Mapping[str, datetime]]:
    """Read a file's content; StateError names `source`."""
    try:
        document = json.loads(content)
        if document["version"] != FORMAT:
            raise StateError(f"{source} has format {document['version']!r}, this release reads {FORMAT}")
        unhealthy: defaultdict[Key, dict[str, datetime]] = defaultdict(dict)
        for entry in document["unhealthy"]:
            key = str(entry["pool"]), str(entry["device"])
            unhealthy[key][str(entry.get("taint", DEFAULT_TAINT))] = _time(entry["since"])
        return dict(unhealthy)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StateError(f"{source} does not hold what was written there: {type(error).__name__}: {error}") from error


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
