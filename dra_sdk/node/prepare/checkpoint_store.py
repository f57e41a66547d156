"""The checkpoints of the claims that hold devices on this node: one file each, and an index of them in memory.

The files are authoritative. With `shared=True` (rolling update: another process of the driver uses the same directory)
every access looks at them first; files that did not change are not read again.

`open` lists the files and reads none. Until `read` has read all, one claim is found by its own file, and no claim that
has no file can be prepared: it is unknown whether its devices are free.

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
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock, RLock
from time import monotonic
from typing import Final

from dra_sdk.errors import RetriableError, StateError
from dra_sdk.node.files import Files, claim_lock, private_directory, safe_id, sync_directory, unfinished
from dra_sdk.node.locks import NamedLocks
from dra_sdk.node.prepare.checkpoint import Checkpoint, encode
from dra_sdk.node.prepare.state_files import (
    DURABLE,
    SUFFIX,
    UNDOING,
    Unreadable,
    forget_skips,
    is_state_file,
    read_checkpoint,
    set_aside,
    skips,
    skips_of_no_claim,
)

log = logging.getLogger(__name__)
_PRIVATE: Final = 0o700
_Resource = tuple[str, str, str]  # `device` or `counters`, the pool, and the name
_Stamp = tuple[int, int, int, int]
_UNKNOWN: _Stamp = (0, 0, 0, 0)  # equals no file's stamp
_RETRY: Final = 1.0  # seconds between two reads of the files that could not be read for a failure of I/O
STATE_FILES: Final = 20_000
"""Claims that a driver holds at most on a node; with more, it prepares no further one."""


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
        self._claims: dict[str, Checkpoint] = {}  # by the `safe_id` of the UID, as all that follows
        self._holders: dict[_Resource, set[str]] = {}  # readable claims by what they hold
        self._unreadable: dict[str, Unreadable] = {}
        self._unread: dict[str, None] = {}  # in the order in which they were listed
        self._reading = Lock()  # of the one thread that reads them
        self._stamps: dict[str, _Stamp] = {}  # of all files, also those not read yet
        self._retry_at = 0.0

    @classmethod
    def of(
        cls, data: Path, boot_id: str, files: Files, *, undoable: bool, shared: bool, volatile: bool = False
    ) -> CheckpointStore:
        """Return the store of a driver under its plugin data directory; call `migrate` before opening it.

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
        """Make the directory and list the state files. SettingsError or StateError if that is not possible.

        Temporary files of killed processes are removed, but not those of claims whose lock is held.
        """
        private_directory(self.directory, _PRIVATE)
        with self._lock:
            try:
                self._sweep(locks or NamedLocks())
            except OSError as error:
                raise StateError(f"cannot use state directory {self.directory}: {error.strerror}") from error
            self._stamps = self._listed()
            self._unread = dict.fromkeys(self._stamps)

    def read(self, ended: Callable[[], bool] = lambda: False) -> bool:
        """Read the state files that were not read yet, until `ended`. Return whether all are read.

        Each thread that needs all of them calls this; one reads, the others wait. `get` and the writes of other threads
        do not wait.
        """
        if not self._unread:
            return True
        with self._reading:
            while self._unread and not ended():
                with self._lock:
                    key = next(iter(self._unread), None)
                if key is not None:
                    self._read_first(key)
            return not self._unread

    def refuse_new(self) -> None:
        """Raise RetriableError while it is not known what all claims hold, or if they are too many for another one."""
        unread, files = len(self._unread), len(self._stamps)
        if files > STATE_FILES:
            raise RetriableError(
                f"{self.directory} has {files} state files, and above {STATE_FILES} no further claim is prepared: "
                f"look with `dra-sdk state {self.directory.parent.name}` for claims that nobody uses"
            )
        if unread:
            raise RetriableError(f"{files - unread} of {files} state files are read; a new claim waits for all of them")

    def path(self, uid: str) -> Path:
        """Return the path of a claim's state file."""
        return Path(self._path(safe_id(uid)))

    def get(self, uid: str) -> Checkpoint | None:
        """Return the checkpoint of a claim, None if it holds nothing; StateError if its file cannot be read."""
        key = safe_id(uid)
        with self._lock:
            self._look_at(key)
            if key in self._unreadable:
                raise StateError(self._unreadable[key].advice)
            return self._claims.get(key)

    def has(self, uid: str) -> bool:
        """Return whether a claim (UID or `safe_id`) has a state file, readable or not."""
        key = safe_id(uid)
        if self._shared:
            return os.path.lexists(self._path(key))
        with self._lock:
            return key in self._stamps

    def all(self) -> list[Checkpoint]:
        """Return every readable claim, in the order of their ids."""
        self.read()
        with self._lock:
            self._look()
            return [self._claims[key] for key in sorted(self._claims)]

    def others(self, except_uid: str) -> list[Checkpoint]:
        """Return all readable claims that hold devices, except one."""
        excepted = safe_id(except_uid)
        self.read()
        with self._lock:
            self._look()
            return [state for key, state in self._claims.items() if key != excepted]

    def holders(
        self, wanted: Checkpoint, rivals: Iterable[tuple[str, str]] = (), *, is_new: bool = False
    ) -> list[Checkpoint]:
        """Return the other claims that hold a device of `wanted`, or take from a counter set of it.

        Also those that hold any device of `rivals`, pool and name. It takes no longer with more claims. `is_new`, for
        a claim that has no state file: see `refuse_new`.
        """
        if is_new:
            self.refuse_new()
        resources = _resources(wanted) | {("device", *rival) for rival in rivals}
        self.read()
        with self._lock:
            self._look()
            holders = (self._holders.get(resource, ()) for resource in resources)
            keys = set().union(*holders) - {safe_id(wanted.claim.uid)}
            damaged = [file.state for file in self._unreadable.values() if file.state is not None]
            return [self._claims[key] for key in sorted(keys)] + [
                state for state in damaged if resources & _resources(state)
            ]

    def unreadable(self, *, look: bool = True) -> dict[str, Unreadable]:
        """Return the files that cannot be read, by the claim's `safe_id`; with `look`, as they are now."""
        self.read()
        with self._lock:
            if look:
                self._look()
            return dict(self._unreadable)

    def put(self, state: Checkpoint, *, survive_power_loss: bool = True) -> None:
        """Write a checkpoint durably; after a StateError the file has the old content or the new.

        `survive_power_loss=False` is for what a reboot makes void, because the boot id differs then.
        """
        key = safe_id(state.claim.uid)
        path = self._path(key)
        try:
            self._files.write(path, encode(state), survive_power_loss=survive_power_loss, whole=self._durable)
            stamp = _stamp(os.lstat(path)) if self._shared else _UNKNOWN  # otherwise only this process changes it
        except OSError as error:
            self._read_again(key)
            raise StateError(f"cannot write state file {path}: {error.strerror or error}") from error
        with self._lock:
            self._take(key, state)
            self._stamps[key] = stamp

    def begin_undo(self, state: Checkpoint) -> None:
        """Make a claim PrepareStarted before it is undone, because a half-undone claim is not prepared.

        On a full disk the file cannot be written. Then its mode marks it, so that devices do not stay held. StateError
        if that fails too; then nothing may be undone.
        """
        key = safe_id(state.claim.uid)
        try:
            self.put(state.undoing(), survive_power_loss=False)
        except StateError as error:
            try:
                self._files.set_mode(self._path(key), UNDOING)
            except FileNotFoundError:
                return  # no file, so the claim does not count as prepared
            except OSError:
                raise error from None
            with self._lock:
                self._read(key)

    def skipped(self, uid: str) -> frozenset[str]:
        """Return the steps of a claim's undo that an operator does without."""
        return skips(self.path(uid))

    def delete(self, uid: str, *, aside: bool = False) -> None:
        """Remove a claim's file durably, or set it aside; after a StateError call it again."""
        key = safe_id(uid)
        path = self._path(key)
        try:
            if aside:
                set_aside(Path(path), self._files)
            self._files.remove(path, survive_power_loss=self._durable)
            if aside:
                forget_skips(Path(path), self._files)
        except OSError as error:
            self._read_again(key)
            raise StateError(f"cannot remove state file {path}: {error.strerror or error}") from error
        with self._lock:
            self._drop(key)

    def _path(self, key: str) -> str:
        return f"{self._prefix}{key}{SUFFIX}"

    def _look(self) -> None:
        if self._shared or self._unreadable:  # an operator may have repaired or removed a file
            self._refresh()

    def _look_at(self, key: str) -> None:
        """See what became of one file, as `_look` does for all."""
        if not (self._shared or key in self._unread or key in self._unreadable):
            return
        try:
            stamp = _stamp(os.lstat(self._path(key)))
        except FileNotFoundError as error:
            if not self.directory.is_dir():  # it is not the file that is missing
                raise self._no_directory(error) from error
            self._drop(key)
        except OSError as error:
            raise self._no_directory(error) from error
        else:
            if key in self._unread or self._stamps.get(key) != stamp or key in self._failed():
                self._read(key)
                self._stamps[key] = stamp

    def _refresh(self) -> None:
        stamps = self._listed()
        for key in self._stamps.keys() - stamps.keys():
            self._drop(key)
        failed = self._failed()
        for key, stamp in stamps.items():
            if self._stamps.get(key) != stamp or key in failed:
                self._read(key)
                self._stamps[key] = stamp

    def _read_first(self, key: str) -> None:
        """Read a file, unless another thread was faster; without the lock, so that `get` never waits for the disk."""
        state = self._content(key)
        with self._lock:
            if key not in self._unread:
                return
            self._take(key, state)
            if state is None:
                self._drop(key)
        if isinstance(state, Unreadable):
            log.error("%s", state.advice)

    def _failed(self) -> set[str]:
        """Return the files to read again though they did not change: the failure of I/O may have ended."""
        if monotonic() < self._retry_at:
            return set()
        return {key for key, file in self._unreadable.items() if file.io_failed}

    def _read_again(self, key: str) -> None:
        """Read the file again after a failed step: it is unknown whether it has the old content or the new."""
        with self._lock:
            self._drop(key)
            if os.path.lexists(self._path(key)):
                self._read(key)
                self._stamps[key] = _UNKNOWN

    def _drop(self, key: str) -> None:
        self._stamps.pop(key, None)
        self._take(key, None)

    def _keep(self, key: str, state: Checkpoint | None) -> None:
        """Make `state` the readable claim of a file, None for none, in both indexes."""
        old = self._claims.pop(key, None)
        for resource in _resources(old) if old else ():
            self._holders[resource].remove(key)
            if not self._holders[resource]:
                del self._holders[resource]
        if state is not None:
            self._claims[key] = state
            for resource in _resources(state):
                self._holders.setdefault(resource, set()).add(key)

    def _listed(self) -> dict[str, _Stamp]:
        try:
            return dict(self._scan())
        except OSError as error:
            raise self._no_directory(error) from error

    def _no_directory(self, error: OSError) -> StateError:
        return StateError(f"cannot read state directory {self.directory}: {error.strerror}")

    def _scan(self) -> Iterator[tuple[str, _Stamp]]:
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if is_state_file(entry.name):
                    with suppress(FileNotFoundError):  # the other process has just removed it
                        yield entry.name.removesuffix(SUFFIX), _stamp(entry.stat(follow_symlinks=False))

    def _read(self, key: str) -> None:
        self._take(key, self._content(key))

    def _content(self, key: str) -> Checkpoint | Unreadable | None:
        try:
            return read_checkpoint(Path(self._path(key)))
        except FileNotFoundError:
            return None

    def _take(self, key: str, state: Checkpoint | Unreadable | None) -> None:
        """Make `state` what a file says, None for no file."""
        self._unread.pop(key, None)
        self._unreadable.pop(key, None)
        self._keep(key, state if isinstance(state, Checkpoint) else None)
        if isinstance(state, Unreadable):
            self._unreadable[key] = state
            if state.io_failed:
                self._retry_at = monotonic() + _RETRY

    def _sweep(self, locks: NamedLocks) -> None:
        for name in unfinished(self.directory, SUFFIX):
            with locks.try_hold(claim_lock(name.removesuffix(SUFFIX))) as held:
                if held:
                    self._files.discard_temporary(self.directory / name)
        for path in skips_of_no_claim(self.directory):
            forget_skips(path, self._files)

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


def _resources(state: Checkpoint) -> set[_Resource]:
    devices = state.claim.devices
    counter_sets = {("counters", held.pool, name) for held in devices for name in held.consumes}
    return {("device", held.pool, held.name) for held in devices} | counter_sets


def _remove(place: Path) -> None:
    if place.is_symlink() or not place.is_dir():
        place.unlink()
    else:
        shutil.rmtree(place)


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
