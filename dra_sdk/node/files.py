"""Durable small files: after a crash at any instruction a file is either the old one or the new one, whole.

The process is root and works in directories of the host, so no file is opened through a symbolic link, and a directory
that other users may write is refused: they could make root write to other places.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from dra_sdk.errors import SettingsError

Step = Callable[[str, Path], None]
PREFIX = ".tmp-"
END = "~"
"""How temporary files begin and end. A container runtime reads every `.json` file of a CDI directory, also these."""
_NAME = 240  # characters of a target's name in that of its temporary file, so that it stays below NAME_MAX
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # with EXCL through no link, symbolic or hard
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # not to wait for the writer of a pipe
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PRIVATE = 0o600
_PLAIN_ID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,127}")
_OTHERS_WRITE = 0o022
_ANYONE_WRITES = 0o002
_CHUNK = 1 << 16
_LARGEST = 64 << 20


class Files:
    """Writes and removes files durably. `on_step` is called before each step, so tests can end the process there.

    Each target has one temporary file, `.tmp-<name>~` beside it, so only one thread of one process may write a target
    at a time; callers hold the claim's lock. What a killed process leaves is overwritten by the next write, or removed
    with the target.

    Pass paths as strings where a prepare waits: pathlib costs more than a system call.
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
        the new one in any case. OSError leaves the old file, or the new one if only the last fsync failed.
        """
        target = os.fspath(path)
        self._step("create", target)
        temporary = _temporary(target)
        handle = _create(temporary)
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
        """Remove `path` and its temporary file if they exist, durably. A call that failed half-way may be repeated."""
        target = os.fspath(path)
        for name in (target, _temporary(target)):
            if os.path.lexists(name):  # on a read-only file system, unlink fails even if there is no file
                self._step("unlink", target)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name)  # noqa: PTH108
        if survive_power_loss and os.path.isdir(_folder(target)):  # noqa: PTH112
            self._sync_directory(target)

    def rename(self, path: Path, name: str) -> Path:
        """Give `path`, a file of any kind, another name in its directory, durably. Return the new path."""
        self._step("rename", str(path))
        new = path.rename(path.with_name(name))
        self._sync_directory(str(path))
        return new

    def set_mode(self, path: str | Path, mode: int) -> None:
        """Change the mode of a file; unlike a write this needs no space on the disk."""
        target = os.fspath(path)
        self._step("chmod", target)
        handle = os.open(target, _READ)
        try:
            os.fchmod(handle, mode)
        finally:
            os.close(handle)

    def discard_temporary(self, path: str | Path) -> None:
        """Remove the temporary file that a killed process left beside `path`."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_temporary(os.fspath(path)))  # noqa: PTH108

    def _fill(self, handle: int, target: str, content: bytes, mode: int, *, whole: bool) -> None:
        self._step("write", target)
        while content:  # a full disk may accept a part and fail with the next call
            content = content[os.write(handle, content) :]
        if mode != _PRIVATE:
            os.fchmod(handle, mode)  # the umask does not apply
        if whole:
            self._step("fsync", target)
            os.fsync(handle)

    def _sync_directory(self, target: str) -> None:
        self._step("fsync-directory", target)
        sync_directory(_folder(target))

    def _step(self, step: str, target: str) -> None:
        if self._on_step is not None:
            self._on_step(step, Path(target))


@lru_cache(maxsize=1024)
def safe_id(uid: str) -> str:
    """Return a claim UID for names of files and CDI devices: itself, or its hash if it has special characters."""
    return uid if _PLAIN_ID.fullmatch(uid) and uid[-1].isalnum() else hashlib.sha256(uid.encode()).hexdigest()


def claim_lock(uid: str) -> str:
    """Return the name of the lock of a claim, given its UID or its `safe_id` (see NamedLocks)."""
    return f"claim/{safe_id(uid)}"


def targets(directory: Path, suffix: str) -> Iterator[str]:
    """Yield the names of files in `directory` that end with `suffix`, also if only the temporary file exists."""
    with os.scandir(directory) as entries:
        names = {entry.name.removeprefix(PREFIX).removesuffix(END) for entry in entries}
    yield from sorted(name for name in names if name.endswith(suffix))


def unfinished(directory: Path, suffix: str) -> list[str]:
    """Return the names of files in `directory` that end with `suffix` and of which there is a temporary file."""
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(PREFIX) and entry.name.endswith(END)]
    return sorted(target for name in names if (target := name.removeprefix(PREFIX).removesuffix(END)).endswith(suffix))


def read(path: str | Path) -> bytes:
    """Return the content of a regular file of at most 64 MiB. OSError for a symbolic link, a pipe and all else."""
    handle = os.open(path, _READ)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(0, "it is not a regular file", os.fspath(path))
        content = bytearray()
        while piece := os.read(handle, _CHUNK):
            content += piece
            if len(content) > _LARGEST:
                raise OSError(errno.EFBIG, "it has more than 64 MiB", os.fspath(path))
        return bytes(content)
    finally:
        os.close(handle)


def sync_directory(directory: str | Path) -> None:
    """Make the names in a directory survive a power failure."""
    handle = os.open(directory, _DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def reason(error: OSError) -> str:
    """Return why a call failed; for a refusal, which user this is, unless it is root."""
    text, user = error.strerror or str(error), os.geteuid()
    if error.errno in {errno.EACCES, errno.EPERM} and user != 0:
        return f"{text}: a driver runs as root, and this is user {user}"
    return text


def private_directory(path: Path, mode: int) -> None:
    """Make a directory, with its parents, that only this user may write.

    SettingsError if it cannot be made, is a symbolic link, or has another owner or a mode that lets others write.
    """
    try:
        for missing in reversed([place for place in (path, *path.parents) if not place.exists()]):
            with contextlib.suppress(FileExistsError):  # another process of a rolling update made it first
                missing.mkdir(mode)
                missing.chmod(mode)  # the umask does not apply
        status = path.lstat()
    except OSError as error:
        raise SettingsError(f"cannot make directory {path}: {reason(error)}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise SettingsError(f"{path} is not a directory but a link or a file; remove it")
    if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
        raise SettingsError(
            f"directory {path} has owner {status.st_uid} and mode {stat.S_IMODE(status.st_mode):04o}; user "
            f"{os.geteuid()} must own it and nobody else may write it, because the driver trusts its files"
        )


def check_shared_directory(path: Path) -> None:
    """Check a directory of the node that several programs use, such as that of CDI specs.

    SettingsError if it belongs to another user than root or this one, or if everybody may replace its files. OSError if
    it cannot be looked at.
    """
    status = path.stat()
    anyone = status.st_mode & _ANYONE_WRITES and not status.st_mode & stat.S_ISVTX
    if status.st_uid not in {0, os.geteuid()} or anyone:
        raise SettingsError(
            f"directory {path} has owner {status.st_uid} and mode {stat.S_IMODE(status.st_mode):04o}; root must own it "
            "and not everybody may write it, because root trusts its files"
        )


def _create(temporary: str) -> int:
    """Open a new file; what has its name, such as one that a killed process left, is removed."""
    try:
        return os.open(temporary, _NEW, _PRIVATE)
    except FileExistsError:
        os.unlink(temporary)  # noqa: PTH108
        return os.open(temporary, _NEW, _PRIVATE)


def _temporary(target: str) -> str:
    folder, slash, name = target.rpartition("/")
    return f"{folder}{slash}{PREFIX}{name[-_NAME:]}{END}"


def _folder(target: str) -> str:
    return os.path.dirname(target) or "."  # noqa: PTH120
