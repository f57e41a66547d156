"""Locks by name: one holder per claim and per device, among threads and, if asked for, among processes.

Only calls for the same claim or device wait for each other; one lock for all calls would let a slow claim delay all
others. First come, first served: the kubelet gives a call up after 45 seconds, and on a busy node a call that
others pass may wait that long. Between processes (rolling update) each name is one byte of a lock file, so no file is
left behind and the kernel releases the locks of a killed process. A queue byte keeps order: hold it before waiting for
the name's byte. So a process that has just released a name cannot take it again before one that waits.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock

_FLOCK = "hhqqi4x"  # struct flock on 64-bit Linux: type, whence, start, length, pid
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class NamedLocks:
    """Locks that exist while they are held. Safe for threads.

    file: a lock file that makes the locks valid between processes. None: for this process alone.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._guard = Lock()
        self._held: set[str] = set()
        self._waiting: dict[Event, frozenset[str]] = {}  # in the order in which they came
        self._file = os.open(file, _OPEN, 0o600) if file else None

    @property
    def is_shared(self) -> bool:
        """Whether other processes use the same lock file."""
        return self._file is not None

    @property
    def held(self) -> frozenset[str]:
        """The names that threads of this process hold, or wait for because another process holds them."""
        with self._guard:
            return frozenset(self._held)

    @property
    def waiting(self) -> int:
        """How many threads wait for other threads of this process."""
        with self._guard:
            return len(self._waiting)

    def hold(self, names: Iterable[str]) -> Hold:
        """Wait for all the named locks and hold them inside a `with`."""
        return Hold(self, frozenset(names))

    @contextmanager
    def try_hold(self, name: str) -> Iterator[bool]:
        """Hold one lock inside a `with` if it is free; yields whether it is held. Never waits."""
        names = frozenset([name])
        with self._guard:
            held = self._is_free(names)
            if held:
                self._held |= names
        if held and self._file is not None:
            held = self._try_range(self._file, names)
        try:
            yield held
        finally:
            if held:
                self.release(names)

    def close(self) -> None:
        """Close the lock file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def acquire(self, names: frozenset[str]) -> None:
        """Wait until all of them are free and no earlier call waits for one, then take all at once: no deadlock."""
        turn = None
        with self._guard:
            if self._is_free(names):
                self._held |= names
            else:
                turn = Event()
                self._waiting[turn] = names
        if turn is not None:
            self._wait(turn, names)
        if self._file is not None:
            try:
                self._acquire_ranges(self._file, names)
            except BaseException:
                self.release(names)
                raise

    def release(self, names: frozenset[str]) -> None:
        """Release them."""
        try:
            if self._file is not None:
                for start, _ in _ranges(names):
                    _unlock(self._file, start)
        finally:
            self._drop(names)

    def _wait(self, turn: Event, names: frozenset[str]) -> None:
        """Wait until `_drop` has given this thread the names."""
        try:
            turn.wait()
        except BaseException:  # such as Ctrl-C
            with self._guard:
                given = self._waiting.pop(turn, None) is None
            self._drop(names if given else frozenset())
            raise

    def _is_free(self, names: frozenset[str]) -> bool:
        """Return whether none is held or waited for; call it with the guard held."""
        return self._held.isdisjoint(names) and all(wanted.isdisjoint(names) for wanted in self._waiting.values())

    def _acquire_ranges(self, file: int, names: frozenset[str]) -> None:
        """Wait for other processes, always in the same order, so that two of them never wait for each other."""
        for start, queue in _ranges(names):
            # Open-file-description locks: with POSIX locks the kernel would report false deadlocks between threads.
            fcntl.fcntl(file, fcntl.F_OFD_SETLKW, _flock(fcntl.F_WRLCK, queue))
            try:
                fcntl.fcntl(file, fcntl.F_OFD_SETLKW, _flock(fcntl.F_WRLCK, start))
            finally:
                _unlock(file, queue)

    def _try_range(self, file: int, names: frozenset[str]) -> bool:
        ((start, _),) = _ranges(names)
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK, start))
        except OSError as error:
            self._drop(names)
            if error.errno in {errno.EAGAIN, errno.EACCES}:
                return False
            raise
        return True

    def _drop(self, names: frozenset[str]) -> None:
        """Take the names from this thread, and give them to those that wait, in order."""
        with self._guard:
            self._held -= names
            taken = set(self._held) if self._waiting else set()  # by holders, and by those that came before
            for turn, wanted in list(self._waiting.items()):
                if taken.isdisjoint(wanted):
                    del self._waiting[turn]
                    self._held |= wanted
                    turn.set()
                taken |= wanted


class Hold:
    """Holds locks inside a `with`; a class, because a generator takes three times as long."""

    __slots__ = ("_locks", "_names")

    def __init__(self, locks: NamedLocks, names: frozenset[str]) -> None:
        self._locks = locks
        self._names = names

    def __enter__(self) -> None:
        self._locks.acquire(self._names)

    def __exit__(self, *_: object) -> None:
        self._locks.release(self._names)


def _flock(kind: int, start: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, start, 1, 0)


def _unlock(file: int, start: int) -> None:
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK, start))


def _ranges(names: Iterable[str]) -> list[tuple[int, int]]:
    """Return the places of these names' bytes in the lock file, each with that of its queue's byte; in order."""
    digests = (hashlib.sha256(name.encode()).digest() for name in names)
    return sorted((int.from_bytes(sha[:8], "big") >> 2, int.from_bytes(sha[8:16], "big") >> 2) for sha in digests)
