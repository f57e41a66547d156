"""Records: what a driver keeps about each device, in a small file per device, with a lock and the boot id.

A claim's journal lists what was done for that claim. A record holds what belongs to the device, for all its claims.
The lock of a device is on its directory: it works between threads and processes, and a killed holder releases it.

Nothing that a record describes survives a reboot, so a record of another boot counts as empty.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import Field, replace
from pathlib import Path
from threading import Event
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from dra_sdk.errors import DraError, RetriableError
from dra_sdk.hardware.polling import Clock

_FILE: Final = "record.json"
_UNFINISHED: Final = "record.new"
_LOCK_SECONDS: Final = 30.0  # a holder may wait for a process to leave a device
_LOCK_INTERVAL: Final = 0.01
_LOOK_INTERVAL: Final = 0.1


class Dataclass(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


R = TypeVar("R", bound=Dataclass)


class RecordError(DraError):
    """A record cannot be read or written; the file is left as it is."""


class Records(Generic[R]):
    """The records of a node below `directory`: `kind` is a dataclass whose fields are JSON and all have defaults.

    A record that equals `kind()` is empty, and has no file.
    """

    def __init__(self, directory: Path, kind: type[R], boot_id: str, clock: Clock) -> None:
        self._directory, self._kind, self._boot_id, self._clock = directory, kind, boot_id, clock

    def devices(self) -> list[str]:
        """Return the devices that have a record."""
        return sorted(path.parent.name for path in self._directory.glob(f"*/{_FILE}"))

    def tidy(self) -> None:
        """Remove what a killed process did not finish to write: no record needs it. Raises as `locked`."""
        for path in self._directory.glob(f"*/{_UNFINISHED}"):
            with self.locked(path.parent.name):
                path.unlink(missing_ok=True)

    @contextmanager
    def locked(self, device: str) -> Iterator[R]:
        """Lock the record of a device while the context lasts, and give it. `save` keeps changes.

        Raises RetriableError if the device stays locked, RecordError if its directory cannot be used.
        """
        directory = self._directory / device
        with ExitStack() as held:
            try:
                directory.mkdir(mode=0o750, parents=True, exist_ok=True)
                held.enter_context(locked(directory, self._clock))
            except OSError as error:
                raise RecordError(f"cannot use {directory}: {error.strerror}") from error
            yield self.read(device)

    def read(self, device: str) -> R:
        """Return the current record of a device, for reading only. Raises RecordError."""
        path = self._directory / device / _FILE
        try:
            text = path.read_text(encoding="utf-8")
            if not text.strip("\0 \n"):  # a power failure can leave a file of the right size without its content
                return self._kind()
            kept: Mapping[str, Any] = json.loads(text)
            if kept["boot"] != self._boot_id:
                return self._kind()
            return self._kind(**{name: kept[name] for name in self._kind.__dataclass_fields__ if name in kept})
        except FileNotFoundError:
            return self._kind()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RecordError(f"{path} cannot be read: {error}; restore or remove it") from error

    def save(self, device: str, record: R) -> None:
        """Write a record; delete it if it is empty. Raises RecordError."""
        path = self._directory / device / _FILE
        fresh = path.with_name(_UNFINISHED)
        try:
            if record == self._kind():
                path.unlink(missing_ok=True)
                fresh.unlink(missing_ok=True)
                return
            # No fsync: after a power failure the device has lost its state as well.
            path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            fresh.write_text(json.dumps({"boot": self._boot_id, **vars(record)}), encoding="utf-8")
            fresh.replace(path)
        except OSError as error:
            raise RecordError(f"cannot write {path}: {error.strerror}") from error


@contextmanager
def locked(directory: Path, clock: Clock) -> Iterator[None]:
    """Lock a directory. Raises OSError if it does not exist, RetriableError if it stays locked."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not replace(clock, interval=_LOCK_INTERVAL).until(lambda: _lock(handle), _LOCK_SECONDS):
            raise RetriableError(f"another call still works on {directory.name}")
        yield
    finally:
        os.close(handle)


@contextmanager
def alone(directory: Path, stop: Event) -> Iterator[bool]:
    """Hold the lock of a directory while a driver runs; False if `stop` is set before another process leaves it.

    In a rolling update two processes of a driver run. What only one of them may do, such as answer on a socket of its
    own, it does within this context in `dra_watch`; the newer one begins when the older one has ended. OSError if the
    directory does not exist.
    """
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        held = False
        while not held and not stop.is_set():
            held = _lock(handle)
            if not held:
                stop.wait(_LOOK_INTERVAL)
        yield held
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
