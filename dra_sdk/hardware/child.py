"""What `SystemEffects` runs in a child process: writing to a file of the kernel, and entering cgroups before a program.

    python child.py write FILE TEXT
    python child.py enter NAMESPACE COUNT CGROUP… PROGRAM ARGUMENT…

This file is run as a script by an interpreter without site packages, so it imports only the standard library. A shell
would start faster, but not every image has one.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress

_CLONE_NEWCGROUP = 0x02000000  # of linux/sched.h


def write(path: str, text: str) -> None:
    """Write to a file in one call. OSError if the kernel refuses it."""
    handle = os.open(path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(handle, os.fsencode(text))
    finally:
        os.close(handle)  # some files of procfs act when they are closed


def enter(namespace: str, cgroups: list[str], command: list[str]) -> None:
    """Enter cgroups, and become the program. A cgroup that refuses the process is reported on stderr.

    With the mount option `nsdelegate`, which systemd sets, the kernel lets a process move only within its cgroup
    namespace. So enter that of the host first, if this is possible.
    """
    with suppress(OSError):
        handle = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        ctypes.CDLL(None).setns(handle, _CLONE_NEWCGROUP)
    for path in cgroups:
        try:
            with open(f"{path}/cgroup.procs", "w", encoding="ascii") as file:  # noqa: PTH123 (pathlib takes long to load)
                file.write("0")  # the process that writes: in the host's namespace it may have another pid
        except OSError as error:
            print(f"cannot enter cgroup {path}: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201 (the log)
    try:
        os.execvp(command[0], command)  # noqa: S606 (as subprocess does)
    except OSError as error:
        sys.exit(f"{command[0]}: cannot be started: {error.strerror}")


if __name__ == "__main__":
    if sys.argv[1] == "write":
        try:
            write(sys.argv[2], sys.argv[3])
        except OSError as error:
            sys.exit(error.strerror)
    else:
        count = int(sys.argv[3])
        enter(sys.argv[2], sys.argv[4 : 4 + count], sys.argv[4 + count :])
