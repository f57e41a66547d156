"""Starts daemons that outlive the harness, and kills them later, but never another process with the same id.

Two things identify a process of a cluster: its id together with its start time (from /proc/<pid>/stat), and a mark in
its environment, which its children inherit. The mark also finds processes that a killed harness did not record.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from .waiting import TIMEOUT, poll

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MARK = "DRA_SDK_CLUSTER"
"""The environment variable with the name of the cluster that a process belongs to."""
_STATE, _START = 0, 19
"""Fields 3 and 22 of /proc/<pid>/stat (proc(5)), counted after the program's name."""


@dataclass(frozen=True)
class Process:
    """A process. Its id and start time together are unique until the machine boots again.

    pid: the process id.
    start: the start time, clock ticks since boot.
    """

    pid: int
    start: int

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Returns the process that has this id now; None if there is none."""
        fields = _stat(pid)
        return None if fields is None else cls(pid, int(fields[_START]))

    def alive(self) -> bool:
        """Tells whether it still runs, which a zombie does not. Reaps it if it is a dead child of this process."""
        fields = _stat(self.pid)
        if fields is None or int(fields[_START]) != self.start:
            return False
        if fields[_STATE] not in "ZX":
            return True
        with suppress(ChildProcessError):  # it has another parent, which reaps it
            os.waitpid(self.pid, os.WNOHANG)
        return False

    def send(self, number: signal.Signals) -> None:
        """Sends a signal if the process is still the same one; its descriptor cannot come to mean another process."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.alive():
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def parse_stat(text: str) -> list[str]:
    """Returns the fields of /proc/<pid>/stat after the program's name, which may have blanks and brackets."""
    return text[text.rindex(")") + 2 :].split()


def spawn(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
    """Starts a daemon in a session of its own, without input; appends its output to `log`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        command[0],
        list(command),
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM],
    )
    process = Process.of(pid)
    assert process is not None, "a child is visible until it is reaped"
    return process


def wait_gone(processes: Iterable[Process], timeout: float) -> list[Process]:
    """Waits at most `timeout` seconds until the processes have ended; returns those that have not."""
    remaining = list(processes)

    def ended() -> bool:
        remaining[:] = [process for process in remaining if process.alive()]
        return not remaining

    poll(ended, timeout, pause=0.02)
    return remaining


def terminate(process: Process, timeout: float) -> None:
    """Asks a process to end, and kills it if it has not ended after `timeout` seconds."""
    process.send(signal.SIGTERM)
    kill(wait_gone([process], timeout))


def kill(processes: Iterable[Process]) -> list[Process]:
    """Kills processes and waits until they are gone; returns those that still run, stuck in the kernel."""
    targets = list(processes)
    for process in targets:
        process.send(signal.SIGKILL)
    return wait_gone(targets, TIMEOUT)


def marked(name: str, proc: Path = Path("/proc")) -> list[Process]:
    """Returns the running processes with the mark of cluster `name`."""
    wanted = f"{MARK}={name}".encode()
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:  # it has ended
            continue
        if wanted in environment.split(b"\0"):
            process = Process.of(int(folder.name))
            if process is not None and process.alive():
                found.append(process)
    return found


def foreign_processes(program: str, proc: Path = Path("/proc")) -> list[int]:
    """Returns the ids of processes of that program that belong to no cluster and that see our files.

    A process in a container has a mount namespace of its own, so the same path is another file there.
    """
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            same = (folder / "comm").read_text().strip() == program
            if same and (folder / "ns/mnt").readlink() == (proc / "self/ns/mnt").readlink():
                ours = f"{MARK}=".encode() in (folder / "environ").read_bytes()
                found += [] if ours else [int(folder.name)]
        except OSError:  # it has ended
            continue
    return found


def _stat(pid: int) -> list[str] | None:
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
