"""The claims that hold devices on this node: one state file each, and an index of them in memory.

The files are the truth. With `shared=True` (rolling update: another process of the same driver works on the same
directory) every look goes to the directory first; files that did not change are not read again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from threading import RLock

from dra_sdk.errors import StateError
from dra_sdk.node.prepare.files import PREFIX, Files
from dra_sdk.wire import state as wire
from dra_sdk.wire.state import ClaimState

log = logging.getLogger(__name__)
SUFFIX = ".json"
_PLAIN = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,127}")
_Stamp = tuple[int, int, int, int]
_UNKNOWN: _Stamp = (0, 0, 0, 0)  # equals no file's stamp
_OLD = 600.0  # seconds after which a temporary file cannot be one that another process is about to rename


def safe_id(uid: str) -> str:
    """A claim UID as part of a file name and of a CDI device name, whatever characters it holds."""
    return uid if _PLAIN.fullmatch(uid) and uid[-1].isalnum() else hashlib.sha256(uid.encode()).hexdigest()


class ClaimStore:
    """State files under one directory; `get`, `put`, `delete` by claim UID. Safe for threads.

    A file that cannot be read stays as it is: `get` of that claim raises StateError naming it, other claims go on.
    Without `durable` nothing waits for the disk: for state that a reboot makes void (see `places`).
    """

    def __init__(
        self, directory: Path, files: Files | None = None, *, shared: bool = False, durable: bool = True
    ) -> None:
        self.directory = directory
        self._durable = durable
        self._files = files or Files()
        self._shared = shared
        self._prefix = f"{directory}{os.sep}"  # paths as strings: pathlib alone took a tenth of a prepare's own time
        self._lock = RLock()
        self._claims: dict[str, ClaimState] = {}
        self._broken: dict[str, str] = {}
        self._seen: dict[str, _Stamp] = {}

    @property
    def abandoned_after(self) -> float:
        """How old in seconds a temporary file must be to be nobody's: at once where we are the only process."""
        return _OLD if self._shared else 0.0

    def open(self) -> None:
        """Create the directory where needed and read every state file; StateError if that is not possible."""
        with self._lock:
            try:
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._files.sweep(self.directory, older_than=self.abandoned_after)
            except OSError as error:
                raise StateError(f"cannot use state directory {self.directory}: {error.strerror}") from error
            self._refresh()
            for reason in self._broken.values():
                log.error(
                    "%s; its claim cannot be prepared or unprepared until the file is restored or removed", reason
                )

    def path(self, uid: str) -> Path:
        """Where a claim's state is kept."""
        return self.directory / _name(uid)

    def get(self, uid: str) -> ClaimState | None:
        """The state of a claim, None if it holds nothing; StateError if its file cannot be read."""
        with self._lock:
            self._look()
            name = _name(uid)
            if name in self._broken:
                raise StateError(self._broken[name])
            return self._claims.get(name)

    def all(self) -> list[ClaimState]:
        """Every readable claim, in the order of file names."""
        with self._lock:
            self._look()
            return [self._claims[name] for name in sorted(self._claims)]

    def others(self, uid: str) -> list[ClaimState]:
        """Every readable claim but one, in no order."""
        mine = _name(uid)
        with self._lock:
            self._look()
            return [state for name, state in self._claims.items() if name != mine]

    def ids(self) -> set[str]:
        """The ids (`safe_id`) of all claims with a state file, readable or not."""
        with self._lock:
            self._look()
            return {name.removesuffix(SUFFIX) for name in self._seen}

    def put(self, state: ClaimState, *, survive_power_loss: bool = True) -> None:
        """Write a claim's state durably; after a StateError the file has the old content or the new.

        What a reboot makes void anyway, because the boot id differs, need not `survive_power_loss`.
        """
        name = _name(state.uid)
        path = self._prefix + name
        try:
            self._files.write(path, wire.encode(state), survive_power_loss=survive_power_loss, whole=self._durable)
            stamp = _stamp(Path(path).stat()) if self._shared else _UNKNOWN  # else nobody but us changes it
        except OSError as error:
            self._read_again(name)
            raise StateError(f"cannot write state file {path}: {error.strerror or error}") from error
        with self._lock:
            self._claims[name] = state
            self._seen[name] = stamp

    def delete(self, uid: str) -> None:
        """Forget a claim durably; after a StateError call it again."""
        name = _name(uid)
        path = self._prefix + name
        try:
            self._files.remove(path, survive_power_loss=self._durable)
        except OSError as error:
            self._read_again(name)
            raise StateError(f"cannot remove state file {path}: {error.strerror or error}") from error
        with self._lock:
            self._drop(name)

    def _look(self) -> None:
        if self._shared or self._broken:  # a broken file may have been restored by an operator
            self._refresh()

    def _refresh(self) -> None:
        try:
            found = dict(self._scan())
        except OSError as error:
            raise StateError(f"cannot read state directory {self.directory}: {error.strerror}") from error
        for name in self._seen.keys() - found.keys():
            self._drop(name)
        for name, stamp in found.items():
            if self._seen.get(name) != stamp or name in self._broken:
                self._read(name)
                self._seen[name] = stamp

    def _read_again(self, name: str) -> None:
        """Believe the file, not the index: a step failed and we do not know which."""
        with self._lock:
            self._drop(name)
            if os.path.lexists(self.directory / name):
                self._read(name)
                self._seen[name] = _UNKNOWN

    def _drop(self, name: str) -> None:
        for known in (self._seen, self._claims, self._broken):
            known.pop(name, None)

    def _scan(self) -> Iterator[tuple[str, _Stamp]]:
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIX) and not entry.name.startswith(PREFIX):
                    try:
                        yield entry.name, _stamp(entry.stat())
                    except FileNotFoundError:  # removed by the other process since
                        continue

    def _read(self, name: str) -> None:
        self._claims.pop(name, None)
        self._broken.pop(name, None)
        path = self.directory / name
        try:
            self._claims[name] = self._decode(path)
        except FileNotFoundError:
            return
        except OSError as error:
            self._broken[name] = f"state file {path} cannot be read: {error.strerror}"
        except StateError as error:
            self._broken[name] = str(error)

    def _decode(self, path: Path) -> ClaimState:
        if path.is_fifo():  # reading would wait for a writer
            raise StateError(f"state file {path} is a pipe; it was not written by dra-sdk")
        state = wire.decode(path.read_bytes(), str(path))
        if self.path(state.uid) != path:
            raise StateError(f"state file {path} belongs to claim {state.uid}, its name says otherwise")
        return state


def _name(uid: str) -> str:
    return safe_id(uid) + SUFFIX


def _stamp(stat: os.stat_result) -> _Stamp:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
