"""Trees of files, compared: what a driver has changed on a host that consists of files."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

Tree = dict[str, bytes | str]
"""Files with their contents and links with their targets, by path."""
Entries = dict[str, tuple[int, int, bytes | str]]
"""All entries of a directory, at any depth: mode, device number, and content of a file or target of a link."""
_LONGEST: Final = 60  # bytes of a file that a message shows


def tree(root: Path) -> Tree:
    """Return the files and links below a directory, to compare them."""
    by_path = sorted(entries(root).items())
    return {
        str(Path(path).relative_to(root)): content
        for path, (mode, _, content) in by_path
        if stat.S_ISLNK(mode) or stat.S_ISREG(mode)
    }


def differences(before: Tree, after: Tree) -> list[str]:
    """Return what differs between two trees, a phrase for each file: `sys/class/net/eth0/state: b'up\\n' → b'down'`."""
    names = sorted({**before, **after})
    return [
        f"{name}: {_shown(before.get(name))} → {_shown(after.get(name))}"
        for name in names
        if before.get(name) != after.get(name)
    ]


def _shown(content: bytes | str | None) -> str:
    """Return the content of a file, the target of a link; shortened if it is long."""
    if content is None:
        return "no file"
    text = repr(content[:_LONGEST]) + ("…" if len(content) > _LONGEST else "")
    return f"link to {text}" if isinstance(content, str) else text


def entries(root: Path) -> Entries:
    """Return all that a new process finds below a directory, with modes and devices of its entries."""
    state: Entries = {}
    folders = [str(root)]
    for folder in folders:
        with os.scandir(folder) as listed:
            for entry in listed:
                status = entry.stat(follow_symlinks=False)
                content: bytes | str = ""
                if stat.S_ISLNK(status.st_mode):
                    content = os.readlink(entry.path)  # noqa: PTH115 (a Path for each file takes too long)
                elif stat.S_ISREG(status.st_mode):
                    with open(entry.path, "rb") as file:  # noqa: PTH123 (as above)
                        content = file.read()
                elif stat.S_ISDIR(status.st_mode):
                    folders.append(entry.path)
                state[entry.path] = (status.st_mode, status.st_rdev, content)
    return state
