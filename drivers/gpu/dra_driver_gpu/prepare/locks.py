"""Locks on directories: among threads and processes, let go of by a holder that is killed, never waited for long."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from dra_driver_gpu.site import Clock
from dra_sdk import RetriableError

_PATIENCE: Final = 30.0  # seconds; a holder may wait for a process to leave a GPU
_INTERVAL: Final = 0.01


@contextmanager
def locked(directory: Path, clock: Clock) -> Iterator[None]:
    """A directory that is nobody else's meanwhile. OSError where there is none, RetriableError where it stays taken."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not replace(clock, interval=_INTERVAL).until(lambda: _taken(handle), _PATIENCE):
            raise RetriableError(f"another call is still at work on {directory.name}")
        yield
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
