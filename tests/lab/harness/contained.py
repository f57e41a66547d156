"""Runs a program in namespaces of its own, so that nothing of it can stay behind, however it or we end.

Its mounts are in its own mount namespace and go with its last process. Its processes are in its own process namespace
and go with the first of them, which the kernel kills when we die.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.cluster.harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_TOOLS = ("setpriv", "unshare", "chroot", "mount")
_ENTER = """\
set -e
root=$1; shift
while [ "$1" != -- ]; do
  mount --bind "$2" "$root$3"
  [ "$1" = rw ] || mount -o "remount,bind,$1" "$root$3"
  shift 3
done
shift
mount -t proc proc "$root/proc"
exec chroot "$root" "$@"
"""


def contained(command: Sequence[str], *, network: bool = False) -> list[str]:
    """The command line that runs `command` so; without `network` it has not even a loopback device that is up.

    To be started from a thread that lives as long as it may: the kernel takes the end of that thread for ours.
    """
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        raise HarnessError(f"the virtual machine needs {', '.join(missing)} (packages util-linux and coreutils)")
    spaces = ["--mount", "--pid", "--ipc", *([] if network else ["--net"])]
    return ["setpriv", "--pdeathsig", "KILL", "unshare", *spaces, "--fork", "--kill-child", "--mount-proc", *command]


def entered(root: Path, command: Sequence[str], *, read: dict[str, Path], write: dict[str, Path]) -> list[str]:
    """The command line that runs `command` with `root` as its root, and at these paths of it other directories."""
    mounts = [*(("ro", path, at) for at, path in read.items()), *(("rw", path, at) for at, path in write.items())]
    words = [str(word) for mount in mounts for word in mount]
    return contained(["sh", "-c", _ENTER, "enter", str(root), *words, "--", *command])
