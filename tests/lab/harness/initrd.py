"""The machine's first file system, a cpio archive: a shell, the modules that reach the root, and `guest/first`.

Made anew for each boot, because it takes a moment only. Source: Documentation/driver-api/early-userspace/buffer-format.
"""

from __future__ import annotations

import gzip
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MODULES = ("9p", "9pnet_virtio", "overlay")
_FIRST = Path(__file__).parents[1] / "guest" / "first"
_DIRECTORIES = ("bin", "dev", "lower", "modules", "proc", "root", "sys", "upper")


def kernel_release(base: Path) -> str:
    """Of the one kernel in the base."""
    found = sorted(path.name for path in (base / "usr/lib/modules").iterdir())
    if len(found) != 1:
        raise HarnessError(f"{base}: expected modules of one kernel, found {', '.join(found) or 'none'}")
    return found[0]


def initrd(base: Path) -> bytes:
    """The archive, compressed; the modules are numbered in the order in which they are to be loaded."""
    modules = base / "usr/lib/modules" / kernel_release(base)
    files = {"init": _FIRST.read_bytes(), "bin/busybox": (base / "usr/bin/busybox").read_bytes()}
    for number, path in enumerate(in_order(MODULES, (modules / "modules.dep").read_text())):
        files[f"modules/{number:02}"] = (modules / path).read_bytes()  # the kernel unpacks them
    return gzip.compress(cpio(_DIRECTORIES, files), compresslevel=1)


def in_order(names: Iterable[str], dependencies: str) -> list[str]:
    """The files of these modules, each after all it needs; `dependencies` is modules.dep (modules.dep(5))."""
    needs = {}
    for line in dependencies.splitlines():
        path, _, others = line.partition(":")
        needs[_module(path)] = (path, others.split())
    found: dict[str, None] = {}  # as an ordered set
    for name in names:
        if name not in needs:
            raise HarnessError(f"the kernel has no module {name}")
        path, others = needs[name]
        found |= dict.fromkeys([*reversed(others), path])  # what others need stands behind them there
    return list(found)


def cpio(directories: Iterable[str], files: Mapping[str, bytes]) -> bytes:
    """An archive in the format `newc`, of directories and programs."""
    entries = [_entry(number, name, stat.S_IFDIR, b"") for number, name in enumerate(directories)]
    start = len(entries)
    entries += [_entry(start + number, name, stat.S_IFREG, data) for number, (name, data) in enumerate(files.items())]
    return b"".join([*entries, _entry(0, "TRAILER!!!", 0, b"")])


def _entry(number: int, name: str, kind: int, content: bytes) -> bytes:
    mode, links, encoded = kind | (0o755 if kind else 0), 1, name.encode() + b"\0"
    #         ino     mode  uid gid nlink  mtime size          major, minor, rmajor, rminor, namesize    check
    fields = (number, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields)
    return _padded(head + encoded) + _padded(content)


def _padded(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % 4)


def _module(path: str) -> str:
    return Path(path).name.partition(".ko")[0]
