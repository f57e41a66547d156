"""Takes a cluster away whole, in whatever state it is: running, half started, crashed, or half taken away."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from . import leftovers, mounts, network
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
    """Kills every process of the cluster and removes all that it made; nothing to remove is fine.

    Nothing is asked to end by itself: the data is thrown away next, so a crash is as good as an orderly stop.
    """
    sysctls = _recorded_sysctls(layout)
    # daemons first: while containerd lives, new containers may appear
    _kill_all(layout, lambda: marked(layout.name))
    identities = leftovers.container_ids(layout.tasks)
    cgroups = leftovers.cgroups_of(identities)
    _kill_all(layout, lambda: leftovers.processes_in(cgroups))
    sockets = leftovers.shim_sockets(layout.tasks)
    mounts.unmount_all(layout.root)
    leftovers.remove_cgroups(cgroups)
    leftovers.remove_shim_sockets(sockets)
    leftovers.remove_network_results(layout.network_name, identities)
    network.remove_pod_interfaces(layout.pod_gateway)
    network.remove_addresses(layout)
    leftovers.remove_log_links(layout.pod_logs)
    if not others(layout):
        leftovers.remove_device_plugins()
        leftovers.restore_sysctls(sysctls)
    if layout.root.is_dir():
        shutil.rmtree(layout.root)


def others(layout: Layout) -> list[Path]:
    """Returns the folders of the other clusters on this machine."""
    parent = layout.root.parent
    return [path for path in parent.iterdir() if path.is_dir() and path != layout.root] if parent.is_dir() else []


def original_sysctls(layout: Layout) -> dict[str, str]:
    """Returns the sysctls as they were before any cluster changed them; of several, the first wrote them down."""
    for folder in others(layout):
        with suppress(HarnessError):
            known = State.load(folder / layout.state_file.name)
            if known is not None:
                return known.sysctls
    return leftovers.read_sysctls()


@contextmanager
def lock(layout: Layout) -> Iterator[None]:
    """Holds the only right to bring this cluster up or down; the lock's file goes with the cluster.

    Raises HarnessError at once when another command holds it.
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
                    with suppress(OSError):  # another cluster lives there
                        parent.rmdir()
            return


def _is_current(path: Path, descriptor: int) -> bool:
    """Tells whether the open file is still the one at `path`: the holder before us may have removed it."""
    with suppress(FileNotFoundError):
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    return False


def _kill_all(layout: Layout, find: Callable[[], list[Process]]) -> None:
    """Kills what `find` returns until it returns nothing: one may start another between the look and the kill."""
    for _ in range(_ROUNDS):
        found = find()
        if not found:
            return
        kill(found)
    left = ", ".join(str(process.pid) for process in found)
    raise HarnessError(f"processes of cluster {layout.name!r} cannot be killed: {left}")


def _recorded_sysctls(layout: Layout) -> dict[str, str]:
    """Returns what to restore; an unreadable state has no say in it."""
    with suppress(HarnessError):
        known = State.load(layout.state_file)
        return {} if known is None else known.sysctls
    return {}
