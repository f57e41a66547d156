"""The checkpoints of the claims that hold devices on this node: one file each, and an index of them in memory.

The files are authoritative. With `shared=True` (rolling update: another process of the driver uses the same directory)
every access reads the directory first; files that did not change are not read again.

A driver with `dra_unprepare` may change things that survive a power failure, so its files must survive too: they are in
`claims/`, and every write waits for the disk. For a driver without it, or a volatile one (`DriverInfo.volatile`), a
reboot makes all state void: its files are in a directory named after the boot, `claims-<boot id>/`, and no write waits
for the disk. Files that a power failure damages there belong to an earlier boot and are dropped unread.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any, Final

from dra_sdk.errors import StateError
from dra_sdk.model.claim import AllocatedDevice
from dra_sdk.node.files import Files, private_directory, safe_id, sync_directory, targets
from dra_sdk.node.locks import NamedLocks
from dra_sdk.node.prepare.checkpoint import Checkpoint, Phase, encode
from dra_sdk.node.prepare.state_files import (
    DURABLE,
    SUFFIX,
    UNDOING,
    Unreadable,
    file_name,
    is_state_file,
    read_checkpoint,
)

log = logging.getLogger(__name__)
_PRIVATE: Final = 0o700
_DeviceKey = tuple[str, str]
_Stamp = tuple[int, int, int, int]
_UNKNOWN: _Stamp = (0, 0, 0, 0)  # equals no file's stamp


class CheckpointStore:
    """State files under one directory; `get`, `put`, `delete` by claim UID. Safe for threads.

    A file that cannot be read stays as it is: `get` of its claim raises StateError with its name. Other claims are not
    affected, but do not get its devices. Without `durable` no write waits for the disk.
    """

    def __init__(
        self, directory: Path, files: Files | None = None, *, shared: bool = False, durable: bool = True
    ) -> None:
        self.directory = directory
        self._durable = durable
        self._files = files or Files()
        self._shared = shared
        self._prefix = f"{directory}{os.sep}"  # a string: pathlib took a tenth of a prepare's own time
        self._lock = RLock()
        self._claims: dict[str, Checkpoint] = {}
        self._holders: dict[_DeviceKey, set[str]] = {}  # files of readable claims by pool and device
        self._unreadable: dict[str, Unreadable] = {}
        self._stamps: dict[str, _Stamp] = {}

    @classmethod
    def of(
        cls, data: Path, boot_id: str, files: Files, *, undoable: bool, shared: bool, volatile: bool = False
    ) -> CheckpointStore:
        """The store of a driver under its plugin data directory; call `migrate` before opening it.

        Processes that share a directory (rolling update) may have two versions, only one of them with `dra_unprepare`.
        So they use the durable directory. Only volatile drivers do not: all versions of one must be volatile.
        """
        if (undoable or shared) and not volatile:
            return cls(data / DURABLE, files, shared=shared)
        return cls(data / f"{DURABLE}-{boot_id}", files, shared=shared, durable=False)

    def migrate(self, data: Path, boot_id: str) -> None:
        """Move state files here if the driver gained or lost `dra_unprepare`, or `volatile` of its DriverInfo.

        Files of earlier boots, in other directories `claims-<boot id>`, are dropped. StateError if that fails.
        """
        of_this_boot = data / f"{DURABLE}-{boot_id}"
        try:
            for place in sorted(data.glob(f"{DURABLE}-*")):
                if place not in {of_this_boot, self.directory}:
                    log.info("dropping %s: what was prepared before the reboot is gone", place)
                    _remove(place)
            for place in {of_this_boot, data / DURABLE} - {self.directory}:
                self._move_from(place)
        except OSError as error:
            raise StateError(f"cannot move state into {self.directory}: {error.strerror or error}") from error

    def open(self, locks: NamedLocks | None = None) -> None:
        """Make the directory and read every state file. SettingsError or StateError if that is not possible.

        Temporary files of killed processes are removed, but not those of claims whose lock is held.
        """
        private_directory(self.directory, _PRIVATE)
        with self._lock:
            try:
                self._sweep(locks or NamedLocks())
            except OSError as error:
                raise StateError(f"cannot use state directory {self.directory}: {error.strerror}") from error
            self._refresh()
            for found in self._unreadable.values():
                log.error("%s", found.advice)

    def path(self, uid: str) -> Path:
        """The path of a claim's state file."""
        return self.directory / file_name(uid)

    def get(self, uid: str) -> Checkpoint | None:
        """The checkpoint of a claim, None if it holds nothing; StateError if its file cannot be read."""
        with self._lock:
            self._look()
            name = file_name(uid)
            if name in self._unreadable:
                raise StateError(self._unreadable[name].advice)
            return self._claims.get(name)

    def all(self) -> list[Checkpoint]:
        """Every readable claim, in the order of file names."""
        with self._lock:
            self._look()
            return [self._claims[name] for name in sorted(self._claims)]

    def others(self, uid: str) -> list[Checkpoint]:
        """All claims that hold devices, except one; of unreadable files, those whose devices are known."""
        mine = file_name(uid)
        with self._lock:
            self._look()
            readable = [state for name, state in self._claims.items() if name != mine]
            return readable + [each.claim for each in self._unreadable.values() if each.claim is not None]

    def holders(self, devices: Iterable[AllocatedDevice[Any]], but: str) -> list[Checkpoint]:
        """Those of `others(but)` that hold any of these devices: few, however many claims there are."""
        mine, wanted = file_name(but), {(each.pool, each.name) for each in devices}
        with self._lock:
            self._look()
            names = set().union(*(self._holders.get(key, ()) for key in wanted)) - {mine}
            damaged = [each.claim for each in self._unreadable.values() if each.claim is not None]
            return [self._claims[name] for name in sorted(names)] + [
                claim for claim in damaged if any((each.pool, each.name) in wanted for each in claim.devices)
            ]

    def unreadable(self) -> dict[str, Unreadable]:
        """The files that cannot be read, by the claim's `safe_id`."""
        with self._lock:
            self._look()
            return {name.removesuffix(SUFFIX): found for name, found in self._unreadable.items()}

    def ids(self) -> set[str]:
        """The ids (`safe_id`) of all claims with a state file, readable or not."""
        with self._lock:
            self._look()
            return {name.removesuffix(SUFFIX) for name in self._stamps}

    def put(self, state: Checkpoint, *, survive_power_loss: bool = True) -> None:
        """Write a checkpoint durably; after a StateError the file has the old content or the new.

        `survive_power_loss=False` is for what a reboot makes void, because the boot id differs then.
        """
        name = file_name(state.uid)
        path = self._prefix + name
        try:
            self._files.write(path, encode(state), survive_power_loss=survive_power_loss, whole=self._durable)
            stamp = _stamp(os.lstat(path)) if self._shared else _UNKNOWN  # otherwise only this process changes it
        except OSError as error:
            self._read_again(name)
            raise StateError(f"cannot write state file {path}: {error.strerror or error}") from error
        with self._lock:
            self._keep(name, state)
            self._stamps[name] = stamp

    def begin_undo(self, state: Checkpoint) -> None:
        """Make a claim PrepareStarted before it is undone, because a half-undone claim is not prepared.

        On a full disk the file cannot be written. Then its mode marks it, so that devices do not stay held. StateError
        if that fails too; then nothing may be undone.
        """
        started = replace(state, phase=Phase.STARTED)
        name = file_name(state.uid)
        try:
            self.put(started, survive_power_loss=False)
        except StateError as error:
            try:
                self._files.set_mode(self._prefix + name, UNDOING)
            except FileNotFoundError:
                return  # no file, so the claim does not count as prepared
            except OSError:
                raise error from None
            with self._lock:
                self._read(name)

    def delete(self, uid: str) -> None:
        """Remove a claim's file durably; after a StateError call it again."""
        name = file_name(uid)
        path = self._prefix + name
        try:
            self._files.remove(path, survive_power_loss=self._durable)
        except OSError as error:
            self._read_again(name)
            raise StateError(f"cannot remove state file {path}: {error.strerror or error}") from error
        with self._lock:
            self._drop(name)

    def _look(self) -> None:
        if self._shared or self._unreadable:  # an operator may have repaired or removed a file
            self._refresh()

    def _refresh(self) -> None:
        try:
            found = dict(self._scan())
        except OSError as error:
            raise StateError(f"cannot read state directory {self.directory}: {error.strerror}") from error
        for name in self._stamps.keys() - found.keys():
            self._drop(name)
        for name, stamp in found.items():
            if self._stamps.get(name) != stamp or name in self._unreadable:
                self._read(name)
                self._stamps[name] = stamp

    def _read_again(self, name: str) -> None:
        """Read the file again after a failed step: it is unknown whether it has the old content or the new."""
        with self._lock:
            self._drop(name)
            if os.path.lexists(self.directory / name):
                self._read(name)
                self._stamps[name] = _UNKNOWN

    def _drop(self, name: str) -> None:
        self._stamps.pop(name, None)
        self._unreadable.pop(name, None)
        self._keep(name, None)

    def _keep(self, name: str, state: Checkpoint | None) -> None:
        """Make `state` the readable claim of a file, None for none, in both indexes."""
        old = self._claims.pop(name, None)
        for key in {(each.pool, each.name) for each in old.devices} if old else ():
            self._holders[key].remove(name)
            if not self._holders[key]:
                del self._holders[key]
        if state is not None:
            self._claims[name] = state
            for each in state.devices:
                self._holders.setdefault((each.pool, each.name), set()).add(name)

    def _scan(self) -> Iterator[tuple[str, _Stamp]]:
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if is_state_file(entry.name):
                    with suppress(FileNotFoundError):  # the other process has just removed it
                        yield entry.name, _stamp(entry.stat(follow_symlinks=False))

    def _read(self, name: str) -> None:
        self._unreadable.pop(name, None)
        self._keep(name, None)
        try:
            found = read_checkpoint(self.directory / name)
        except FileNotFoundError:
            return
        if isinstance(found, Unreadable):
            self._unreadable[name] = found
        else:
            self._keep(name, found)

    def _sweep(self, locks: NamedLocks) -> None:
        for name in targets(self.directory, SUFFIX):
            with locks.try_hold(claim_lock(name.removesuffix(SUFFIX))) as held:
                if held:
                    self._files.discard_temporary(self.directory / name)

    def _move_from(self, old: Path) -> None:
        if not old.is_dir() or old.is_symlink():
            return
        private_directory(self.directory, _PRIVATE)
        for path in sorted(old.glob(f"*{SUFFIX}")):
            if stat.S_ISREG(path.lstat().st_mode):
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            path.rename(self.directory / path.name)
        shutil.rmtree(old)  # temporary files
        for directory in (self.directory, old.parent):
            sync_directory(directory)


def claim_lock(uid: str) -> str:
    """The name of the lock of a claim (or of its `safe_id`)."""
    return f"claim/{safe_id(uid)}"


def _remove(place: Path) -> None:
    if place.is_symlink() or not place.is_dir():
        place.unlink()
    else:
        shutil.rmtree(place)


def _stamp(found: os.stat_result) -> _Stamp:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
