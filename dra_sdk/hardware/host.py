"""The small text files of a host: how they are read.

Every reader takes a `Host`, so that tests can give it a tree of files. The `Node` that a hook gets is one. Errors name
the file and what was in it.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dra_sdk.errors import HardwareError
from dra_sdk.hardware.cpuset import CpuSet, parse_cpuset

_T = TypeVar("_T")


def read_text(path: Path) -> str:
    """Return the content of a file without leading and trailing white space. HardwareError if it cannot be read."""
    try:
        return path.read_bytes().decode(errors="replace").strip()
    except OSError as error:
        raise HardwareError(f"{path}: cannot be read: {error.strerror}") from error


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
        raise HardwareError(f"{path}: expected a {kind} number, found {text!r}") from None


def read_key_values(path: Path) -> dict[str, str]:
    """Return the `KEY=VALUE` lines of a file, such as `uevent` of a device or `os-release`; other lines are left out.

    Of a key that is there twice the last value counts. A value keeps its quotes. HardwareError if it cannot be read.
    """
    lines = (line.partition("=") for line in read_text(path).splitlines())
    return {key: value for key, equals, value in lines if key and equals}


def read_cpuset(path: Path) -> CpuSet:
    """Return the CPUs of the CPU list in a file. HardwareError if it is not a CPU list."""
    try:
        return parse_cpuset(read_text(path))
    except ValueError as error:
        raise HardwareError(f"{path}: {error}") from None


def read_optional(read: Callable[[Path], _T], path: Path) -> _T | None:
    """Return `read(path)`, or None if the file does not exist. An invalid file still raises HardwareError."""
    try:
        return read(path) if path.exists() else None
    except HardwareError:
        if path.exists():
            raise
        return None  # it was removed while it was read


def link_target_name(path: Path) -> str | None:
    """Return the last part of the target of a symbolic link, None if there is no link.

    In sysfs the link `driver -> ../../bus/pci/drivers/vfio-pci` means that a device is bound to driver vfio-pci. The
    target need not exist. HardwareError if the link cannot be read.
    """
    try:
        return path.readlink().name
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.EINVAL}:
            return None
        raise HardwareError(f"{path}: cannot be read: {error.strerror}") from error


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
    try:
        names = [pattern.fullmatch(path.name) for path in directory.iterdir()]
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise HardwareError(f"{directory}: cannot be listed: {error.strerror}") from error
    return {number: directory / f"{prefix}{number}" for number in sorted(int(name[1]) for name in names if name)}
