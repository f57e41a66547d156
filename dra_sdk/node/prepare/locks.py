"""Locks by name: one holder per claim and per device, among threads and, where asked for, among processes.

Go drivers serialise every call behind one lock, so a slow claim stalls all others; here only calls that touch the
same claim or device wait for each other. Among processes (rolling update) a byte range of one lock file stands for
each name, so nothing is left behind and a killed holder lets go.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from threading import Condition, Lock

_FLOCK = "hhqqi4x"  # struct flock on 64-bit Linux: type, whence, start, length, pid


class NamedLocks:
    """Locks that exist while somebody holds them. `file` extends them to other processes."""

    def __init__(self, file: Path | None = None) -> None:
        self._guard = Lock()
        self._freed = Condition(self._guard)
        self._waiting = 0
        self._held: set[str] = set()
        self._file = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) if file else None

    def hold(self, names: Iterable[str]) -> Hold:
        """All the named locks, held inside a `with`."""
        return Hold(self, frozenset(names))

    def close(self) -> None:
        """Close the lock file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def take(self, names: frozenset[str]) -> None:
        """Wait until nobody holds any of them, and hold them all: who waits holds none, so nobody waits for ever."""
        with self._guard:
            while not self._held.isdisjoint(names):
                self._waiting += 1
                try:
                    self._freed.wait()
                finally:
                    self._waiting -= 1
            self._held |= names
        if self._file is not None:
            try:
                self._take_ranges(self._file, names)
            except BaseException:
                self.give(names)
                raise

    def give(self, names: frozenset[str]) -> None:
        """Let them go."""
        try:
            if self._file is not None:
                for start in _ranges(names):
                    fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK, start))
        finally:
            with self._guard:
                self._held -= names
                if self._waiting:
                    self._freed.notify_all()

    def _take_ranges(self, file: int, names: frozenset[str]) -> None:
        """Wait for other processes; in one global order, so two holders never wait for each other."""
        for start in _ranges(names):
            # Open-file-description locks: unlike POSIX ones they know no false deadlock among threads.
            fcntl.fcntl(file, fcntl.F_OFD_SETLKW, _flock(fcntl.F_WRLCK, start))


class Hold:
    """Holds locks inside a `with`; a class and no generator, which would take three times as long."""

    __slots__ = ("_locks", "_names")

    def __init__(self, locks: NamedLocks, names: frozenset[str]) -> None:
        self._locks = locks
        self._names = names

    def __enter__(self) -> None:
        self._locks.take(self._names)

    def __exit__(self, *_: object) -> None:
        self._locks.give(self._names)


def _flock(kind: int, start: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, start, 1, 0)


def _ranges(names: Iterable[str]) -> list[int]:
    """Where in the lock file the bytes of these names lie, in order."""
    return sorted({int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 2 for name in names})
