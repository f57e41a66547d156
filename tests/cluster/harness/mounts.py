"""Reads mountinfo and takes mounts away."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .errors import HarnessError

MOUNTINFO = Path("/proc/self/mountinfo")
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo: where it is, the type of file system, the options of the file system."""

    point: Path
    kind: str
    options: tuple[str, ...]


def parse(text: str) -> list[Mount]:
    """Reads /proc/<pid>/mountinfo (proc(5)); blanks in paths are written there as octal escapes."""
    mounts = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), before.split(" ")[4])
        kind, _, options = after.split(" ", 2)
        mounts.append(Mount(Path(point), kind, tuple(options.split(","))))
    return mounts


def below(root: Path, mounts: list[Mount]) -> list[Path]:
    """Returns the mount points at and below `root`, in the order in which they can be taken away."""
    return [mount.point for mount in reversed(mounts) if mount.point == root or root in mount.point.parents]


def unmount_all(root: Path) -> None:
    """Takes away every mount at and below `root`; raises HarnessError for one that stays.

    Nothing may stay: the folder is deleted next, and through a bind mount of a volume that would delete the
    machine's own files.
    """
    for point in below(root, parse(MOUNTINFO.read_text())):
        if subprocess.run(["umount", str(point)], capture_output=True, check=False).returncode != 0:
            # somebody outside the cluster works in it: detach it now, the kernel frees it when they leave
            subprocess.run(["umount", "--lazy", str(point)], capture_output=True, check=False)
    if left := below(root, parse(MOUNTINFO.read_text())):
        raise HarnessError(f"cannot unmount {', '.join(map(str, left))}")
