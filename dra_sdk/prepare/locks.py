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
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock

_FLOCK = "hhqqi4x"  # struct flock on 64-bit Linux: type, whence, start, length, pid


class NamedLocks:
    """Locks that exist while somebody holds or awaits them. `file` extends them to other processes."""

    def __init__(self, file: Path | None = None) -> None:
        self._guard = Lock()
        self._locks: dict[int, tuple[Lock, int]] = {}
        self._file = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) if file else None

    @contextmanager
    def hold(self, names: Iterable[str]) -> Iterator[None]:
        """Hold all the named locks; taken in one global order, so two holders never wait for each other."""
        with ExitStack() as stack:
            for key in sorted({_key(name) for name in names}):
                stack.enter_context(self._one(key))
            yield

    def close(self) -> None:
        """Close the lock file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @contextmanager
    def _one(self, key: int) -> Iterator[None]:
        with self._guard:
            lock, users = self._locks.get(key, (Lock(), 0))
            self._locks[key] = (lock, users + 1)
        try:
            with lock, self._across_processes(key):
                yield
        finally:
            with self._guard:
                users = self._locks[key][1] - 1
                if users:
                    self._locks[key] = (lock, users)
                else:
                    del self._locks[key]

    @contextmanager
    def _across_processes(self, key: int) -> Iterator[None]:
        if self._file is None:
            yield
            return
        # Open-file-description locks: unlike POSIX ones they know no false deadlock among threads.
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLKW, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, key, 1, 0))
        try:
            yield
        finally:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_UNLCK, os.SEEK_SET, key, 1, 0))


def _key(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 2
