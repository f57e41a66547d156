"""The NVML of a node, opened for as long as somebody uses it, and closed while a GPU changes its kernel driver.

An open NVML holds the device nodes of all GPUs, so a GPU that is to be passed through would never become free. Whoever
uses NVML for long (watching events, say) must let go once `close_requested` is true.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Event, Lock
from typing import Final

from dra_driver_gpu.nvml import Nvml, NvmlError
from dra_driver_gpu.nvml.errors import DriverNotLoadedError, LibraryNotFoundError
from dra_driver_gpu.nvml.memory import FIXTURE_FILE, read_fixture
from dra_driver_gpu.nvml.real import RealNvml
from dra_driver_gpu.rooted import follow
from dra_sdk import HardwareError, RetriableError

log = logging.getLogger(__name__)
CLOSING: Final = 10.0  # seconds; calls of NVML take milliseconds
OPENING: Final = 30.0  # seconds; as long as a GPU may take to change its driver


class Library:
    """One NVML, shared by threads."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._changed = Condition()
        self._users = 0
        self._close_requested = Event()

    @property
    def close_requested(self) -> bool:
        """Whether somebody needs NVML closed, or has it closed: users leave, new ones wait."""
        return self._close_requested.is_set()

    def wait_for_close_request(self, seconds: float) -> bool:
        """Wait until somebody needs NVML closed; False if nobody does within so many seconds."""
        return self._close_requested.wait(seconds)

    @contextmanager
    def use(self, seconds: float = OPENING) -> Iterator[Nvml]:
        """NVML, initialized; handles are void after the `with`.

        HardwareError where there is no NVIDIA driver, RetriableError where NVML stays closed for so many seconds.
        """
        self._enter(seconds)
        try:
            yield self._nvml
        finally:
            self._leave()

    @contextmanager
    def closed(self, seconds: float = CLOSING) -> Iterator[None]:
        """A time without NVML. RetriableError where somebody does not let go of it for so many seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._close_requested.is_set(), seconds):
                raise RetriableError("another GPU is still changing its driver")
            self._close_requested.set()
            free = self._changed.wait_for(lambda: not self._users, seconds)
        try:
            if not free:
                raise RetriableError(f"NVML was still in use after {seconds:.0f} s")
            yield
        finally:
            with self._changed:
                self._close_requested.clear()
                self._changed.notify_all()

    def _enter(self, seconds: float) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: not self._close_requested.is_set(), seconds):
                raise RetriableError("NVML is closed while a GPU changes its driver")
            if not self._users:
                _initialize(self._nvml)
            self._users += 1

    def _leave(self) -> None:
        with self._changed:
            self._users -= 1
            if not self._users:
                try:
                    self._nvml.shutdown()
                except NvmlError as error:  # what was done with it is done
                    log.warning("NVML does not close: %s", error)
            self._changed.notify_all()


class Libraries:
    """The NVML of each node root: what `make` gives, the GPUs of a fixture, or the library of the driver there."""

    def __init__(self, driver_root: str, make: Callable[[Path], Nvml] | None = None) -> None:
        self._driver_root = driver_root
        self._make = make or self._found
        self._lock = Lock()
        self._libraries: dict[Path, Library] = {}

    def of(self, root: Path) -> Library:
        """The library of the node whose root is here; always the same."""
        with self._lock:
            if root not in self._libraries:
                self._libraries[root] = Library(self._make(root))
            return self._libraries[root]

    def _found(self, root: Path) -> Nvml:
        fixture = root / FIXTURE_FILE
        return read_fixture(fixture) if fixture.exists() else RealNvml(follow(root, self._driver_root))


def _initialize(nvml: Nvml) -> None:
    try:
        nvml.init()
    except LibraryNotFoundError as error:
        raise NoDriverError(
            f"no NVIDIA driver is installed here: {error}; install it, or say where it is with DRA_GPU_DRIVER_ROOT"
        ) from error
    except DriverNotLoadedError as error:
        raise NoDriverError(
            f"the NVIDIA kernel module is not loaded: {error}; load it with `modprobe nvidia`"
        ) from error


class NoDriverError(HardwareError):
    """The node has no NVIDIA driver that works, so whatever needs NVML cannot be done."""
