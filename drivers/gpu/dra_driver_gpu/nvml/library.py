"""The NVML of a node: open while it is used, closed while a GPU changes its kernel driver.

An open NVML holds the device nodes of all GPUs, so a GPU for a virtual machine would never become free. A user that
keeps NVML open for long, to wait for events, must leave when `close_requested` is true.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Event, Lock
from typing import Final

from dra_driver_gpu.nvml.api import Nvml
from dra_driver_gpu.nvml.errors import DriverNotLoadedError, LibraryNotFoundError, NvmlError
from dra_driver_gpu.nvml.queries import OptionalQueries
from dra_driver_gpu.nvml.real import RealNvml
from dra_sdk import HardwareError, RetriableError
from dra_sdk.hardware.host_paths import follow

log = logging.getLogger(__name__)
CLOSE_SECONDS: Final = 10.0  # NVML calls take milliseconds
OPEN_SECONDS: Final = 30.0  # as long as a GPU may take to change its driver


class NoDriverError(HardwareError):
    """The node has no working NVIDIA driver, so nothing that needs NVML can be done."""


class NotLoadedError(NoDriverError):
    """The kernel module is not loaded, so nothing is left of what was set on its GPUs."""


class NvmlLibrary:
    """One NVML, shared by threads. `optional` are the queries that may stay without an answer."""

    def __init__(self, nvml: Nvml) -> None:
        self.optional = OptionalQueries()
        self._nvml = nvml
        self._changed = Condition()
        self._users = 0
        self._close_requested = Event()

    @property
    def close_requested(self) -> bool:
        """Whether a `closed` waits or runs: users leave, new users wait."""
        return self._close_requested.is_set()

    @contextmanager
    def use(self, seconds: float = OPEN_SECONDS) -> Iterator[Nvml]:
        """NVML, initialized; handles are invalid after the `with`.

        Raises NoDriverError without an NVIDIA driver, RetriableError if NVML stays closed for `seconds`.
        """
        self._enter(seconds)
        try:
            yield self._nvml
        finally:
            self._leave()

    @contextmanager
    def closed(self, seconds: float = CLOSE_SECONDS) -> Iterator[None]:
        """Keep NVML closed. Raises RetriableError if a user does not leave within `seconds`."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self.close_requested, seconds):
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
            if not self._changed.wait_for(lambda: not self.close_requested, seconds):
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
                except NvmlError as error:  # the user's own work succeeded
                    log.warning("NVML cannot be shut down: %s", error)
            self._changed.notify_all()


class NvmlLibraries:
    """The NVML of each node root: from `make` if that is given, else the library of the driver there."""

    def __init__(self, driver_root: str, make: Callable[[Path], Nvml] | None = None) -> None:
        self._make = make or (lambda root: RealNvml(follow(root, driver_root)))
        self._lock = Lock()
        self._libraries: dict[Path, NvmlLibrary] = {}

    def of(self, root: Path) -> NvmlLibrary:
        """Return the library of the node with this root; always the same object."""
        with self._lock:
            if root not in self._libraries:
                self._libraries[root] = NvmlLibrary(self._make(root))
            return self._libraries[root]


def _initialize(nvml: Nvml) -> None:
    try:
        nvml.init()
    except LibraryNotFoundError as error:
        raise NoDriverError(
            f"no NVIDIA driver is installed here: {error}; install it, or set DRA_GPU_DRIVER_ROOT to where it is"
        ) from error
    except DriverNotLoadedError as error:
        raise NotLoadedError(
            f"the NVIDIA kernel module is not loaded: {error}; load it with `modprobe nvidia`"
        ) from error
