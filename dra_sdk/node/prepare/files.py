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
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
_PRIVATE = 0o600


class Files:
    """Writes and removes files durably. `on_step` is called before each step, so tests can end the process there.

    Paths are best given as strings where a prepare waits: what pathlib makes of them costs more than a system call.
    """

    def __init__(self, on_step: Step | None = None) -> None:
        self._on_step = on_step

    def write(
        self,
        path: str | Path,
        content: bytes,
        mode: int = _PRIVATE,
        *,
        survive_power_loss: bool = True,
        whole: bool = True,
    ) -> None:
        """Replace `path`: temporary file, fsync, rename, fsync of the directory.

        Without `survive_power_loss` the last fsync is left out: after a power failure the file may be the old one.
        Without `whole` the first is left out as well: then it may even be torn. A killed process leaves the old one or
        the new one in any case. OSError leaves the old file, or the new one where only the last fsync failed.
        """
        target = os.fspath(path)
        self._step("create", target)
        folder, slash, name = target.rpartition("/")
        temporary = f"{folder}{slash}{PREFIX}{name[:_NAME]}-{os.getpid()}-{get_ident()}"
        handle = os.open(temporary, _NEW, _PRIVATE)
        try:
            try:
                self._fill(handle, target, content, mode, whole=whole)
            finally:
                os.close(handle)
            self._step("rename", target)
            os.rename(temporary, target)  # noqa: PTH104 (a string on purpose, as below)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            raise
        if survive_power_loss and whole:
            self._sync_directory(target)

    def remove(self, path: str | Path, *, survive_power_loss: bool = True) -> None:
        """Remove `path` if it exists, durably; that it is missing may be the work of a call that failed after it."""
        target = os.fspath(path)
        if os.path.lexists(target):  # unlink of nothing fails where the file system is read-only
            self._step("unlink", target)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(target)  # noqa: PTH108
        if survive_power_loss and os.path.isdir(_folder(target)):  # noqa: PTH112
            self._sync_directory(target)

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

    def _fill(self, handle: int, target: str, content: bytes, mode: int, *, whole: bool) -> None:
        self._step("write", target)
        while content:  # the disk may take a part, and tell with the next that it is full
            content = content[os.write(handle, content) :]
        if mode != _PRIVATE:
            os.fchmod(handle, mode)  # whatever the umask says
        if whole:
            self._step("fsync", target)
            os.fsync(handle)

    def _sync_directory(self, target: str) -> None:
        self._step("fsync-directory", target)
        handle = os.open(_folder(target), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _step(self, step: str, target: str) -> None:
        if self._on_step is not None:
            self._on_step(step, Path(target))


def _folder(target: str) -> str:
    return os.path.dirname(target) or "."  # noqa: PTH120
