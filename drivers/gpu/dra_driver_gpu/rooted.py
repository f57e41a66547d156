"""Paths below a root that is not ours: a host's that is mounted here, or a driver container's.

A link there means what it means to programs whose `/` that root is. Followed by our kernel, an absolute one would end
among our own files.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Final

from dra_sdk import HardwareError

_MAX_LINKS: Final = 40


def follow(root: Path, path: str | Path) -> Path:
    """Where `path` below `root` lies, links followed as if `root` were `/`; parts that do not exist stay as they are.

    HardwareError where links lead in a circle.
    """
    parts, at, links = deque(Path(path).parts), root, 0
    while parts:
        part = parts.popleft()
        if part in {"/", ".."}:
            at = root if part == "/" or at == root else at.parent
            continue
        at /= part
        if at.is_symlink():
            links += 1
            if links > _MAX_LINKS:
                raise HardwareError(f"{path} below {root}: links lead in a circle, at {at}")
            parts.extendleft(reversed(at.readlink().parts))
            at = at.parent
    return at
