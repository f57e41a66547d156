"""The reader of a host: small files, directories and links of sysfs, procfs and /dev.

Every reader takes a `Host`, so that tests can give it a tree of files. The `Node` that a hook gets is one. Errors name
the file and what was in it. A driver reads its node by these functions and not by `open`, so that each fact is one of:

- essential: `read_text`, `read_int`, … raise HardwareError, `read_if_exists` too, but not for a file that is missing.
  The error costs one device: catch it there, and call `leave_out`;
- descriptive: `read_optional` is None for what the kernel refuses or answers wrongly, and remembers file and reason.

Nothing else opens, lists or follows what discovery, health and prepare look at. A test puts other answers in the
kernel's place: see `dra_sdk.testing.host_faults`.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from dra_sdk.errors import HardwareError
from dra_sdk.hardware.cpuset import CpuSet, parse_cpuset
from dra_sdk.model.omissions import leave_out_fact

_T = TypeVar("_T")
SMALL: Final = 64 << 10
"""The most bytes of a file of sysfs, whose attributes have a page (Documentation/filesystems/sysfs.rst)."""
LARGE: Final = 16 << 20
"""The most bytes of other files: tables of mounts, databases of names, lists of module aliases."""
MOST_ENTRIES: Final = 65_536
"""The most entries of a directory."""
_MODE: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # a pipe in a file's place does not block
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_UNSET: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA})
_LONGEST_QUOTE: Final = 64  # characters of a file that an error quotes
_LONGEST_PATH: Final = 512  # and of a path that is refused, such as one with too long a name


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

    def status(self, path: Path) -> os.stat_result:
        """Return what kind of file is there, with all links followed, and whose it is."""
        return os.stat(path)  # noqa: PTH116 (as above)


_answering: Final = [HostFiles()]  # the last one answers: the kernel, or what a test has put in its place


@contextmanager
def answered_by(files: HostFiles) -> Iterator[None]:
    """Let `files` answer in the kernel's place, in all threads: for tests."""
    _answering.append(files)
    try:
        yield
    finally:
        _answering.remove(files)


def read_text(path: Path, limit: int = SMALL) -> str:
    """Return the content of a file without leading and trailing white space.

    HardwareError if it cannot be read, or is larger than `limit` bytes.
    """
    try:
        return _answering[-1].content(path, limit).decode(errors="replace").strip()
    except (OSError, ValueError) as error:
        raise _refused(path, "read", error) from error


def read_large_text(path: Path) -> str:
    """Return the content of a file of up to 16 MiB, as `read_text`: a table of mounts, a database of names."""
    return read_text(path, LARGE)


def read_beginning(path: Path, size: int) -> bytes:
    """Return the first `size` bytes of a file, or all of it if it has fewer. HardwareError if it cannot be read."""
    try:
        return _answering[-1].beginning(path, size)
    except (OSError, ValueError) as error:
        raise _refused(path, "read", error) from error


def _refused(path: Path, done: str, error: OSError | ValueError) -> HardwareError:
    """Return the error for what the kernel refuses; ValueError is Python's for a path with a null character."""
    reason = error.strerror if isinstance(error, OSError) else error
    name = str(path) if len(str(path)) <= _LONGEST_PATH else f"{str(path)[:_LONGEST_PATH]}…"
    return HardwareError(f"{name}: cannot be {done}: {reason}")


def read_int(path: Path) -> int:
    """Return the decimal number in a file. HardwareError if there is none."""
    return _number(path, 10)


def read_hex(path: Path) -> int:
    """Return the hexadecimal number in a file, with or without `0x`. HardwareError if there is none."""
    return _number(path, 16)


def _number(path: Path, base: int) -> int:
    text = read_text(path)
    try:
        return int(text, base)
    except ValueError:
        kind = "hexadecimal" if base == 16 else "decimal"  # noqa: PLR2004
        raise HardwareError(f"{path}: expected a {kind} number, found {quoted(text)}") from None


def quoted(text: str) -> str:
    """Quote what a file contains for an error; the beginning of it if it is long."""
    return repr(text) if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]!r}…"


def read_key_values(path: Path) -> dict[str, str]:
    """Return the `KEY=VALUE` lines of a file, such as `uevent` of a device or `os-release`; other lines are left out.

    Of a key that is there twice the last value counts. A value keeps its quotes. HardwareError if it cannot be read.
    """
    lines = (line.partition("=") for line in read_text(path).splitlines())
    return {key: value for key, equals, value in lines if key and equals}


def read_cpuset(path: Path) -> CpuSet:
    """Return the CPUs of the CPU list in a file. HardwareError if it is not a CPU list."""
    text = read_text(path)
    try:
        return parse_cpuset(text)
    except ValueError as error:
        raise HardwareError(f"{path}: {error}" if len(text) <= _LONGEST_QUOTE else f"{path}: not a CPU list") from None


def read_if_exists(read: Callable[[Path], _T], path: Path, *, may_be_unset: bool = False) -> _T | None:
    """Return `read(path)`, or None if the file does not exist. An invalid file still raises HardwareError.

    may_be_unset: None too where the kernel says by EINVAL, EOPNOTSUPP or ENODATA that there is no such value now, as
        for the speed of an interface that is switched off.
    """
    try:
        return read(path)
    except HardwareError as error:
        number = error.__cause__.errno if isinstance(error.__cause__, OSError) else None
        if number in _ABSENT or (may_be_unset and number in _UNSET):
            return None
        raise


def read_optional(read: Callable[[Path], _T], path: Path, *, may_be_unset: bool = False) -> _T | None:
    """Return what only describes a device: `read(path)`, or None if there is no valid answer.

    What the kernel refuses, and what `read` raises HardwareError for, is remembered with the file and the
    reason, and named once in log, metrics and `dra-sdk doctor`; but not a file that does not exist, nor what
    `read_if_exists` takes for unset.
    """
    try:
        return read_if_exists(read, path, may_be_unset=may_be_unset)
    except HardwareError as error:
        leave_out_fact(str(path), error)
        return None


def link_target(path: Path) -> str | None:
    """Return the target of a symbolic link as it is written, None if nothing is there. The target need not exist.

    HardwareError if the link cannot be read, or if it is none.
    """
    return read_if_exists(_target, path)


def target_if_link(path: Path) -> str | None:
    """Return the target of a symbolic link, None if nothing is there, or no link. HardwareError as `link_target`."""
    return read_if_exists(_target, path, may_be_unset=True)


def is_link(path: Path) -> bool:
    """Return whether a symbolic link is at a path. HardwareError as `link_target`."""
    return target_if_link(path) is not None


def _target(path: Path) -> str:
    try:
        return _answering[-1].target(path)
    except (OSError, ValueError) as error:
        raise _refused(path, "read", error) from error


def link_target_name(path: Path) -> str | None:
    """Return the last part of the target of a symbolic link, None if nothing is there.

    In sysfs the link `driver -> ../../bus/pci/drivers/vfio-pci` means that a device is bound to driver vfio-pci. The
    target need not exist. HardwareError if the link cannot be read, or if it is none.
    """
    target = link_target(path)
    return None if target is None else Path(target).name


def real_path(path: Path) -> Path:
    """Return a path with all its links followed. HardwareError if a part does not exist, or links form a loop."""
    try:
        return _answering[-1].real(path)
    except (OSError, ValueError) as error:
        raise _refused(path, "followed", error) from error


def file_status(path: Path) -> os.stat_result | None:
    """Return the kind and owner of the file to which a path leads, None if nothing is there.

    HardwareError if the kernel does not say it.
    """
    try:
        return _answering[-1].status(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise _refused(path, "looked at", error) from error


def exists(path: Path) -> bool:
    """Return whether something is at a path, also if links lead to it. HardwareError as `file_status`."""
    return file_status(path) is not None


def is_directory(path: Path) -> bool:
    """Return whether a path leads to a directory. HardwareError as `file_status`."""
    status = file_status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def is_regular_file(path: Path) -> bool:
    """Return whether a path leads to a regular file. HardwareError as `file_status`."""
    status = file_status(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def entries(directory: Path) -> list[str]:
    """Return the names of the entries of a directory, sorted; none if it does not exist.

    HardwareError if it cannot be listed.
    """
    try:
        return sorted(_answering[-1].names(directory))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise _refused(directory, "listed", error) from error


def device_file(path: Path) -> str:
    """Return the device node of a device, from its directory in sysfs: `/dev/accel/accel0`, `/dev/bus/usb/001/004`.

    HardwareError if the device has none, as with a PCI function whose node belongs to a directory below it.
    Source: `DEVNAME` of the file `uevent`, Documentation/ABI/testing/sysfs-uevent of the kernel.
    """
    if name := read_key_values(path / "uevent").get("DEVNAME"):
        return f"/dev/{name}"
    raise HardwareError(f"{path / 'uevent'}: no DEVNAME: the device has no device node")


def numbered_paths(directory: Path, prefix: str) -> dict[int, Path]:
    """Return the entries of a directory named `prefix` and a number (`node0`, `node1`, …), ascending by number.

    A directory that does not exist has none.
    """
    pattern = re.compile(re.escape(prefix) + r"(\d+)", re.ASCII)
    names = map(pattern.fullmatch, entries(directory))
    return {number: directory / f"{prefix}{number}" for number in sorted(int(name[1]) for name in names if name)}
