"""Cgroups of daemons: a daemon outlives the driver's container only outside of that container's cgroup.

When a container ends, its runtime kills every process in its cgroup, also those that left the container's other
namespaces. So a daemon gets a cgroup of its own, `dra/<name>` below the root of the host's hierarchy, and enters it
before it starts. With cgroup v1 that is one directory in each hierarchy. No controller is turned on there.

The host's hierarchies are those that its first process sees mounted. A pod needs `hostPID`, and the host's root
writable. Source: cgroups(7); cgroup_namespaces(7).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from dra_sdk.errors import HardwareError
from dra_sdk.hardware.host import exists, read_large_text
from dra_sdk.hardware.node_access import Command, NodeAccess

log = logging.getLogger(__name__)
PARENT: Final = "dra"
"""The cgroup that has the cgroups of all daemons. It has no processes of its own, as cgroup v2 demands."""
_VERSION_1: Final = "cgroup"
_TYPES: Final = frozenset({_VERSION_1, "cgroup2"})
_CPUSET: Final = ("cpuset.cpus", "cpuset.mems")
_EMPTY_SECONDS: Final = 5.0  # until the kernel has taken a process that ended out of its cgroup


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The cgroup of this name on a node, in all its hierarchies.

    node: the node.
    name: its name below `PARENT`.
    """

    node: NodeAccess
    name: str

    def enclose(self, command: Command) -> Command:
        """Return the command of a daemon that starts in this cgroup, which is made if it does not exist.

        A hierarchy that cannot be changed is left out, with a warning: there the daemon stays in the driver's cgroup.
        """
        made, failures = [], []
        for directory, kind in self._directories():
            try:
                directory.mkdir(parents=True, exist_ok=True)
                if kind == _VERSION_1:
                    _inherit_cpuset(directory)
                made.append(directory)
            except OSError as error:
                failures.append(f"{directory}: {error.strerror}")
        if failures or not made:
            reason = "; ".join(failures) or f"{self._mounts} shows no cgroups"
            log.warning("%s has no cgroup of its own and ends with the driver's container: %s", self.name, reason)
        return replace(command, cgroups=made, cgroup_namespace=str(self.node.host.proc / "1/ns/cgroup"))

    def processes(self) -> list[int]:
        """Return the pids of its processes; those outside of the pid namespace of this process are left out."""
        texts = (_text(directory / "cgroup.procs") for directory, _ in self._directories())
        return sorted({int(pid) for text in texts for pid in text.split()} - {0})

    def check(self, pid: int) -> None:
        """Warn if a daemon that was to start here is elsewhere, because the kernel refused it."""
        directories = [directory for directory, _ in self._directories() if exists(directory)]
        without = [directory for directory in directories if str(pid) not in _text(directory / "cgroup.procs").split()]
        if without:
            names = ", ".join(map(str, without))
            log.warning("process %d is not in %s, and ends with the driver's container", pid, names)

    def remove(self) -> None:
        """Remove it. If it still has processes, it stays, with a warning."""
        for directory, _ in self._directories():
            if exists(directory) and not self.node.clock.until(partial(_removed, directory), _EMPTY_SECONDS):
                log.warning("cgroup %s still has processes, so it is not removed", directory)

    def _directories(self) -> Iterator[tuple[Path, str]]:
        """Yield its directory in each hierarchy, and the hierarchy's type of file system."""
        for line in _text(self._mounts).splitlines():
            _, place, kind, *_ = line.split()
            if kind in _TYPES:
                yield self.node.local(place) / PARENT / self.name, kind

    @property
    def _mounts(self) -> Path:
        return self.node.host.proc / "1/mounts"


def _text(path: Path) -> str:
    try:
        return read_large_text(path)
    except HardwareError:  # absent, or not readable without privileges
        return ""


def _inherit_cpuset(directory: Path) -> None:
    """Give CPUs and memory to a new cpuset of cgroup v1, which has none and takes no process."""
    for cpuset in (directory.parent, directory):
        for name in _CPUSET:
            if exists(cpuset / name) and not _text(cpuset / name):
                (cpuset / name).write_text(_text(cpuset.parent / name), encoding="ascii")


def _removed(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # it has processes
        return False
    return True
