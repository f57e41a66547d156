"""The machine's first file system, a cpio archive: a shell, `guest/init`, and the modules that reach the root.

It is made for each boot, which takes a moment only. Source: Documentation/driver-api/early-userspace/buffer-format.
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
_INIT = Path(__file__).parents[1] / "guest" / "init"
_DIRECTORIES = ("bin", "dev", "lower", "modules", "proc", "root", "sys", "upper")


def kernel_release(base: Path) -> str:
    """Returns the release of the only kernel in the base."""
    found = sorted(path.name for path in (base / "usr/lib/modules").iterdir())
    if len(found) != 1:
        raise HarnessError(f"{base}: expected modules of one kernel, found {', '.join(found) or 'none'}")
    return found[0]


def initrd(base: Path) -> bytes:
    """Returns the compressed archive. The modules have numbers, in the order in which `guest/init` loads them."""
    modules = base / "usr/lib/modules" / kernel_release(base)
    files = {"init": _INIT.read_bytes(), "bin/busybox": (base / "usr/bin/busybox").read_bytes()}
    for number, path in enumerate(load_order(MODULES, (modules / "modules.dep").read_text())):
        files[f"modules/{number:02}"] = (modules / path).read_bytes()  # the kernel decompresses them
    return gzip.compress(cpio(_DIRECTORIES, files), compresslevel=1)


def load_order(names: Iterable[str], dependencies: str) -> list[str]:
    """Returns the files of these modules, each after those that it needs; `dependencies` is modules.dep(5).

    HarnessError for a module that is not there.
    """
    needs = {}
    for line in dependencies.splitlines():
        path, _, others = line.partition(":")
        needs[_module(path)] = (path, others.split())
    found: dict[str, None] = {}  # an ordered set
    for name in names:
        if name not in needs:
            raise HarnessError(f"the kernel has no module {name}")
        path, others = needs[name]
        found |= dict.fromkeys([*reversed(others), path])  # modules.dep names the last dependency first
    return list(found)


def cpio(directories: Iterable[str], files: Mapping[str, bytes]) -> bytes:
    """Returns an archive in the format `newc` with directories and executable files."""
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
