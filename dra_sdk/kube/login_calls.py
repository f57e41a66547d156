"""Calls into the Kubernetes client that may hang: it waits without limit for an exec plugin or an OIDC provider."""

from __future__ import annotations

import atexit
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Final, TypeVar

from dra_sdk.errors import SettingsError
from dra_sdk.kube.source import Source

T = TypeVar("T")
PLUGIN_SECONDS: Final = 20.0
"""How long an exec plugin or an OIDC provider may take."""
_PROC: Final = Path("/proc")
_VARIABLE: Final = b"KUBERNETES_EXEC_INFO="  # the client sets it for a plugin, and what a plugin starts inherits it
_ROUNDS: Final = 10  # a plugin may start a process while the others are killed
_turns: Final[dict[Source, Lock]] = defaultdict(Lock)


def call(function: Callable[[], T], source: Source) -> T:
    """Return what a function that may hang returns, called in a thread of its own; one at a time for each source.

    After PLUGIN_SECONDS the plugin is killed with all that it has started. SettingsError then, and if an earlier call
    takes that long to end.
    """
    what, turn, outcome = f"{source}: the exec plugin or OIDC provider", _turns[source], Future[T]()

    def run() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:  # noqa: BLE001 (it is raised below, in the thread that waits)
            outcome.set_exception(error)
        finally:
            turn.release()

    if not turn.acquire(timeout=PLUGIN_SECONDS):
        raise SettingsError(f"{what} has not answered an earlier call for {PLUGIN_SECONDS:.0f} s")
    Thread(target=run, name="login", daemon=True).start()
    if not wait([outcome], PLUGIN_SECONDS).done:
        ended = " and was ended" if end_plugins() else ""
        raise SettingsError(f"{what} did not answer within {PLUGIN_SECONDS:.0f} s{ended}")
    return outcome.result()


@atexit.register
def end_plugins() -> bool:
    """Kill the exec plugins that this process has started, with all that they have started; False if there is none.

    The client keeps no handle of a plugin, so they are recognized by the variable that it sets for them. One whose
    parent has ended belongs to the init process, and is not seen.
    """
    ended = False
    for _ in range(_ROUNDS):
        if not sum(map(_kill_plugin, _descendants(os.getpid()))):
            break
        ended = True
    return ended


def _kill_plugin(pid: int) -> bool:
    """Kill a process if it is a plugin, or started by one; False if it is not, or has ended."""
    with suppress(OSError):
        process = os.pidfd_open(pid)  # another process can get the number, but not this handle
        try:
            variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
            if any(variable.startswith(_VARIABLE) for variable in variables):
                signal.pidfd_send_signal(process, signal.SIGKILL)
                return True
        finally:
            os.close(process)
    return False


def _descendants(ancestor: int) -> Iterator[int]:
    """Yield the processes that a process has started, and those that they have, and so on."""
    children: dict[int, list[int]] = {}
    for stat in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = stat.read_text().rpartition(") ")[2].split()[1]
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    waiting = list(children.get(ancestor, ()))
    while waiting:
        yield (pid := waiting.pop())
        waiting += children.get(pid, ())
