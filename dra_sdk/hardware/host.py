"""The host's file systems: where they are, and how their small text files are read.

Every reader takes a `Host`, so that tests can give it a tree of files. Errors name the file and what was in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dra_sdk.errors import HardwareError
from dra_sdk.hardware.cpuset import CpuSet, parse_cpuset

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Host:
    """A host whose `/sys`, `/proc` and `/dev` lie under `root`.

    `Host()` is the machine itself. In a container that mounts the host's root somewhere, give that directory;
    in a test, give a directory filled by `dra_sdk.testing.sysfs`.
    """

    root: Path = Path("/")

    @property
    def sys(self) -> Path:
        """The sysfs of the host."""
        return self.root / "sys"

    @property
    def proc(self) -> Path:
        """The procfs of the host."""
        return self.root / "proc"

    @property
    def dev(self) -> Path:
        """The device nodes of the host."""
        return self.root / "dev"


def read_text(path: Path) -> str:
    """The content of `path` without the white space around it. Raises HardwareError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise HardwareError(f"{path}: cannot be read: {error.strerror}") from error


def read_int(path: Path) -> int:
    """The decimal number in `path`. Raises HardwareError if there is none."""
    return _number(path, 10)


def read_hex(path: Path) -> int:
    """The hexadecimal number in `path`, with or without `0x`. Raises HardwareError if there is none."""
    return _number(path, 16)


def _number(path: Path, base: int) -> int:
    text = read_text(path)
    try:
        return int(text, base)
    except ValueError:
        kind = "hexadecimal" if base == 16 else "decimal"  # noqa: PLR2004
        raise HardwareError(f"{path}: expected a {kind} number, found {text!r}") from None


def read_cpuset(path: Path) -> CpuSet:
    """The CPU list in `path`. Raises HardwareError if it is not one."""
    try:
        return parse_cpuset(read_text(path))
    except ValueError as error:
        raise HardwareError(f"{path}: {error}") from None


def optional(read: Callable[[Path], _T], path: Path) -> _T | None:
    """What `read` makes of `path`, or None where there is no such file; a file that makes no sense still raises."""
    return read(path) if path.exists() else None


def link_name(path: Path) -> str | None:
    """Last part of what the symbolic link `path` points to, or None if there is no such link.

    sysfs says "bound to driver vfio-pci" with a link `driver -> ../../bus/pci/drivers/vfio-pci`; the target need
    not be there.
    """
    return path.readlink().name if path.is_symlink() else None


def numbered(directory: Path, prefix: str) -> dict[int, Path]:
    """Entries of `directory` called `prefix` and a number (`node0`, `node1`, …), in the order of the number.

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
