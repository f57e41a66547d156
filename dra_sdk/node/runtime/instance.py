"""The lock on a driver's data directory, and the boot id, which changes with each boot of the node."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from dra_sdk.errors import SettingsError
from dra_sdk.node.files import reason

log = logging.getLogger(__name__)
DATA_MODE: Final = 0o750
"""The mode of a driver's plugin data directory."""
INSTANCE_LOCK: Final = "instance.lock"
"""The file in it that a running driver locks."""
CLAIM_LOCKS: Final = "locks"
"""The file in it whose bytes are the locks of claims and devices in a rolling update."""
NRI_LOCK: Final = "nri.lock"
"""The file in it that the process locks which is connected to the container runtime, in a rolling update."""


class InstanceLock:
    """A lock on a driver's data directory, released by the kernel if the process dies.

    path: the lock file.
    shared: whether the processes of a rolling update share it; otherwise it is exclusive.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        self._path = path
        self._kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        self._handle: int | None = None

    def acquire(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for another instance to end, then SettingsError."""
        if not self.try_acquire(timeout):
            raise SettingsError(
                f"another instance of this driver still works on {self._path.parent}; end it, "
                f"or give both a pod UID for a rolling update"
            )

    def try_acquire(self, timeout: float = 0.0) -> bool:
        """Take the lock within `timeout` seconds. Return whether it is held; SettingsError for an unusable file."""
        try:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            held = self._wait(self._handle, monotonic() + timeout)
        except OSError as error:
            self.release()
            raise SettingsError(f"cannot lock {self._path}: {reason(error)}") from error
        if not held:
            self.release()
        return held

    def _wait(self, handle: int, deadline: float) -> bool:
        logged = False
        while True:
            try:
                fcntl.flock(handle, self._kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if monotonic() >= deadline:
                    return False
                if not logged:
                    log.info("waiting for another instance of this driver to end")
                    logged = True
                sleep(0.05)
            else:
                return True

    def release(self) -> None:
        """Release the lock, so that the next instance starts."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def read_boot_id(root: Path) -> str:
    """Return the kernel's boot id of the host; SettingsError if it cannot be read."""
    path = root / "proc/sys/kernel/random/boot_id"
    try:
        boot_id = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise SettingsError(f"cannot read the boot id from {path}: {error.strerror}") from error
    if not boot_id:  # every boot would look like the last one
        raise SettingsError(f"{path} is empty, it should hold the boot id")
    return boot_id
