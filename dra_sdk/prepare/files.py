"""Durable small files: after a crash at any instruction a file is either the old one or the new one, whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import get_ident
from time import time

Step = Callable[[str, Path], None]
PREFIX = ".tmp-"
_NAME = 200  # characters of the target's name in that of its temporary file, so that it stays below NAME_MAX


def _no_step(_step: str, _path: Path) -> None:
    """Nothing to do between two steps."""


class Files:
    """Writes and removes files durably. `on_step` is called before each step, so tests can end the process there."""

    def __init__(self, on_step: Step = _no_step) -> None:
        self._step = on_step

    def write(
        self, path: Path, content: bytes, mode: int = 0o600, *, survive_power_loss: bool = True, whole: bool = True
    ) -> None:
        """Replace `path`: temporary file, fsync, rename, fsync of the directory.

        Without `survive_power_loss` the last fsync is left out: after a power failure the file may be the old one.
        Without `whole` the first is left out as well: then it may even be torn. A killed process leaves the old one or
        the new one in any case. OSError leaves the old file, or the new one where only the last fsync failed.
        """
        self._step("create", path)
        name = f"{path.parent}/{PREFIX}{path.name[:_NAME]}-{os.getpid()}-{get_ident()}"
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with open(handle, "wb") as file:  # noqa: PTH123 (a file descriptor)
                self._step("write", path)
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), mode)
                if whole:
                    self._step("fsync", path)
                    os.fsync(file.fileno())
            self._step("rename", path)
            os.rename(name, path)  # noqa: PTH104 (a name, not a Path, on the hot path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)  # noqa: PTH108
            raise
        if survive_power_loss and whole:
            self._sync_directory(path)

    def remove(self, path: Path, *, survive_power_loss: bool = True) -> None:
        """Remove `path` if it exists, durably; that it is missing may be the work of a call that failed after it."""
        if os.path.lexists(path):  # unlink of nothing fails where the file system is read-only
            self._step("unlink", path)
            path.unlink(missing_ok=True)
        if survive_power_loss and path.parent.is_dir():
            self._sync_directory(path)

    def sweep(self, directory: Path, pattern: str = "*", *, older_than: float = 0.0) -> None:
        """Remove temporary files that a crash left behind: those of targets that match `pattern` and have some age.

        `older_than` in seconds spares what another process may be about to rename.
        """
        self.discard(directory.glob(f"{PREFIX}{pattern}"), older_than=older_than)

    def discard(self, paths: Iterable[Path], *, older_than: float = 0.0) -> None:
        """Remove files that seem to be nobody's, where they have not changed for `older_than` seconds."""
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                if abs(time() - path.stat().st_mtime) >= older_than:  # from the future: the clock was set back since
                    path.unlink()

    def _sync_directory(self, path: Path) -> None:
        self._step("fsync-directory", path)
        handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
