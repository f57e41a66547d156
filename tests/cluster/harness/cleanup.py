"""Removes a whole cluster in any state: running, half started, crashed, or half removed."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from . import leftovers, network
from .errors import HarnessError
from .processes import kill, marked
from .state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .layout import Layout
    from .processes import Process

_ROUNDS = 5


def remove(layout: Layout) -> None:
    """Kills every process of the cluster and removes everything that it made; does nothing if there is nothing.

    No process is asked to end by itself: the data is deleted next, so a crash does no harm.
    """
    sysctls = _recorded_sysctls(layout)
    # Daemons first: while containerd runs, new containers may appear.
    _kill_all(layout, lambda: marked(layout.name))
    identities = leftovers.container_ids(layout.tasks)
    cgroups = leftovers.cgroups_of(identities)
    _kill_all(layout, lambda: leftovers.processes_in(cgroups))
    sockets = leftovers.shim_sockets(layout.tasks)
    leftovers.unmount_all(layout.root)
    leftovers.remove_cgroups(cgroups)
    leftovers.remove_shim_sockets(sockets)
    leftovers.remove_network_results(layout.network_name, identities)
    network.remove_pod_interfaces(layout.pod_gateway)
    network.remove_addresses(layout)
    leftovers.remove_log_links(layout.pod_logs)
    if not other_clusters(layout):
        leftovers.remove_device_plugins()
        leftovers.restore_sysctls(sysctls)
    if layout.root.is_dir():
        shutil.rmtree(layout.root)


def other_clusters(layout: Layout) -> list[Path]:
    """Returns the folders of the other clusters on this machine."""
    parent = layout.root.parent
    return [path for path in parent.iterdir() if path.is_dir() and path != layout.root] if parent.is_dir() else []


def original_sysctls(layout: Layout) -> dict[str, str]:
    """Returns the sysctls as they were before any cluster changed them; the first of several clusters recorded them."""
    for folder in other_clusters(layout):
        with suppress(HarnessError):
            known = State.load(folder / layout.state_file.name)
            if known is not None:
                return known.sysctls
    return leftovers.read_sysctls()


@contextmanager
def lock(layout: Layout) -> Iterator[None]:
    """Keeps other commands from bringing this cluster up or down. The lock's file is removed with the cluster.

    Raises HarnessError at once if another command holds the lock.
    """
    parent = layout.root.parent
    path = parent / f".{layout.name}.lock"
    while True:
        parent.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError), path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HarnessError(f"another command is bringing cluster {layout.name!r} up or down") from None
            if not _is_current(path, file.fileno()):
                continue
            try:
                yield
            finally:
                if not layout.root.is_dir():
                    path.unlink()
                    with suppress(OSError):  # another cluster is there
                        parent.rmdir()
            return


def _is_current(path: Path, descriptor: int) -> bool:
    """Tells whether the open file is still the one at `path`: the previous holder may have removed it."""
    with suppress(FileNotFoundError):
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    return False


def _kill_all(layout: Layout, find: Callable[[], list[Process]]) -> None:
    """Kills what `find` returns until it returns nothing: a process may start another one before it is killed."""
    for _ in range(_ROUNDS):
        found = find()
        if not found:
            return
        kill(found)
    left = ", ".join(str(process.pid) for process in found)
    raise HarnessError(f"processes of cluster {layout.name!r} cannot be killed: {left}")


def _recorded_sysctls(layout: Layout) -> dict[str, str]:
    """Returns the sysctls to restore; none if the state cannot be read."""
    with suppress(HarnessError):
        known = State.load(layout.state_file)
        return {} if known is None else known.sysctls
    return {}
