"""The only place where files of a host are opened, listed and followed for discovery, health and prepare.

Readers stand on the functions of `dra_sdk.hardware.host`, which turn what the kernel refuses into HardwareError. A test
puts other answers in the kernel's place: see `dra_sdk.testing.host_faults`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SMALL: Final = 64 << 10
"""The most bytes of a file of sysfs, whose attributes have a page (Documentation/filesystems/sysfs.rst)."""
LARGE: Final = 16 << 20
"""The most bytes of other files: tables of mounts, databases of names, lists of module aliases."""
MOST_ENTRIES: Final = 65_536
"""The most entries of a directory."""
_MODE: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # a pipe in a file's place does not block


class HostFiles:
    """What the kernel answers. Every method raises OSError, also for an answer that exceeds its limit."""

    def content(self, path: Path, limit: int) -> bytes:
        """Return the content of a file of at most `limit` bytes."""
        handle = os.open(path, _MODE)
        try:
            parts: list[bytes] = []
            left = limit + 1
            while left > 0 and (part := os.read(handle, left)):
                parts.append(part)
                left -= len(part)
        finally:
            os.close(handle)
        if left <= 0:
            raise OSError(errno.EFBIG, f"is larger than {limit >> 10} KiB")
        return b"".join(parts)

    def beginning(self, path: Path, size: int) -> bytes:
        """Return the first `size` bytes of a file, or all of it if it has fewer."""
        handle = os.open(path, _MODE)
        try:
            return os.read(handle, size)
        finally:
            os.close(handle)

    def names(self, directory: Path) -> list[str]:
        """Return the names of the entries of a directory, in no order."""
        names = os.listdir(directory)  # noqa: PTH208 (paths of thousands of entries take long to make)
        if len(names) > MOST_ENTRIES:
            raise OSError(errno.EFBIG, f"has more than {MOST_ENTRIES} entries")
        return names

    def target(self, link: Path) -> str:
        """Return the target of a symbolic link as it is written there."""
        return os.readlink(link)  # noqa: PTH115 (a node has an interface for each of its pods)

    def real(self, path: Path) -> Path:
        """Return a path that exists, with all its links followed."""
        return Path(os.path.realpath(path, strict=True))


_answering: Final = [HostFiles()]  # the last one answers


def host_files() -> HostFiles:
    """Return what answers in this process: the kernel, or what a test has put in its place."""
    return _answering[-1]


@contextmanager
def answered_by(files: HostFiles) -> Iterator[None]:
    """Let `files` answer in the kernel's place, in all threads: for tests."""
    _answering.append(files)
    try:
        yield
    finally:
        _answering.remove(files)
