"""Where the state of claims is kept: it depends on what a reboot means to the driver.

A driver with `dra_unprepare` changes what may outlive a power failure, so its state must as well: it lies in
`claims/`, and every write of it reaches the disk. For a driver without, a reboot makes all state void: it lies in a
directory named after the boot, `claims-<boot id>/`, where nothing waits for the disk. A killed process loses nothing,
and what a power failure tore is of another boot and is thrown away unread. When a driver gains or loses the hook, its
claims move.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from dra_sdk.errors import StateError
from dra_sdk.node.prepare.files import Files
from dra_sdk.node.prepare.store import SUFFIX, ClaimStore

log = logging.getLogger(__name__)
_DURABLE = "claims"


def claim_store(data: Path, boot_id: str, files: Files, *, undoable: bool, shared: bool) -> ClaimStore:
    """The store of a driver under its plugin data directory; call `settle` before opening it.

    Processes that share a directory (rolling update) may be of two versions, of which one has the hook: they use the
    durable place.
    """
    if undoable or shared:
        return ClaimStore(data / _DURABLE, files, shared=shared)
    return ClaimStore(data / f"{_DURABLE}-{boot_id}", files, durable=False)


def settle(store: ClaimStore, data: Path, boot_id: str) -> None:
    """Move claims of this boot to where `store` looks, and drop places of other boots; StateError if that fails."""
    mine = data / f"{_DURABLE}-{boot_id}"
    try:
        for place in sorted(data.glob(f"{_DURABLE}-*")):
            if place not in {mine, store.directory}:
                log.info("dropping %s: what was prepared before the reboot is gone", place)
                shutil.rmtree(place)
        for place in {mine, data / _DURABLE} - {store.directory}:
            _move(place, store.directory)
    except OSError as error:
        raise StateError(f"cannot move state into {store.directory}: {error.strerror or error}") from error


def _move(old: Path, new: Path) -> None:
    if not old.is_dir():
        return
    new.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in sorted(old.glob(f"*{SUFFIX}")):
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.rename(new / path.name)
    for path in old.iterdir():  # temporary files
        path.unlink()
    old.rmdir()
    for directory in (new, old.parent):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(handle)
        os.close(handle)
