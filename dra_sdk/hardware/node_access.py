"""Acting on a node: writing files of the kernel, running programs, starting and ending daemons, all with a deadline.

`Effects` is one narrow protocol, so that a test can record, refuse or imitate each action. `NodeAccess` is a node with
its root, its effects and the time of a call.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol, Self

from dra_sdk.errors import RetriableError
from dra_sdk.hardware.host import Host, optional, read_text
from dra_sdk.hardware.host_paths import follow
from dra_sdk.hardware.polling import Clock

_PROC: Final = Path("/proc")
_SHOWN: Final = 500  # characters of a program's output in an error
_ENDED: Final = frozenset("ZX")
_START_TIME: Final = 18  # index of `starttime` among the fields after the state, see proc_pid_stat(5)
_KILL_SECONDS: Final = 1.0  # from SIGKILL to the end of a process that does not hang in the kernel
_SHORTEST: Final = 1.0  # seconds for a program although the call has ended: it may be one that undoes something
_lock = Lock()
_children: list[_Child] = []  # of this process, not of a SystemEffects: daemons outlive what started them


@dataclass(frozen=True, slots=True)
class _Child:
    process: subprocess.Popen[Any]
    environment: frozenset[str]


@dataclass(frozen=True, slots=True)
class Command:
    """A program to run.

    argv: the program and its arguments.
    stdin: what it reads.
    env: variables that are added to the environment of this process.
    timeout: how long it may take, in seconds; a daemon has no limit.
    """

    argv: Sequence[str]
    stdin: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 20.0

    def __str__(self) -> str:
        stdin = f" ({self.stdin.strip()})" if self.stdin else ""
        return " ".join(self.argv) + stdin


class CommandError(RetriableError):
    """A program could not be run, took too long, or ended with a status other than 0."""


class WriteError(RetriableError):
    """The kernel refused what was written to one of its files."""


class Effects(Protocol):
    """What can be done to a node."""

    def write(self, path: Path, text: str) -> None:
        """Write to a file of sysfs or procfs in one call. Raises WriteError with the file."""

    def run(self, command: Command) -> str:
        """Run a program to its end and return its output. Raises CommandError with what it printed."""

    def start(self, command: Command, log: Path) -> int:
        """Start a daemon, which outlives this process, and return its pid; `log` gets its output. CommandError."""

    def running(self, marker: str) -> list[int]:
        """The processes with `marker` (`NAME=value`) in their environment, of any parent, the oldest first."""

    def started(self, pid: int) -> int | None:
        """When this process was started, in ticks since boot; with the pid it identifies it. None if it has ended."""

    def kill(self, pids: Sequence[int], *, force: bool = False) -> None:
        """End processes by SIGTERM, with `force` by SIGKILL; a process that is gone is no error."""


class SystemEffects:
    """`Effects` on the machine on which this process runs."""

    def write(self, path: Path, text: str) -> None:
        """See `Effects.write`."""
        try:
            handle = os.open(path, os.O_WRONLY | os.O_TRUNC)
            try:
                os.write(handle, text.encode())
            finally:
                os.close(handle)
        except OSError as error:
            raise WriteError(f"cannot write {text.strip()!r} to {path}: {error.strerror}") from error

    def run(self, command: Command) -> str:
        """See `Effects.run`."""
        _reap()
        try:
            process = subprocess.Popen(
                command.argv,
                env={**os.environ, **command.env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise CommandError(f"{command}: cannot be run: {error.strerror}") from error
        try:
            output, errors = process.communicate(command.stdin, timeout=command.timeout)
        except subprocess.TimeoutExpired:
            raise CommandError(f"{command}: no answer within {command.timeout:.0f} s") from None
        finally:
            if process.returncode is None:
                _abandon(process)
        if process.returncode:
            printed = " ".join(f"{errors} {output}".split())[:_SHOWN]
            raise CommandError(f"{command}: status {process.returncode}: {printed or 'no output'}")
        return output

    def start(self, command: Command, log: Path) -> int:
        """See `Effects.start`."""
        _reap()
        try:
            with log.open("ab") as output:
                child = subprocess.Popen(
                    command.argv,
                    env={**os.environ, **command.env},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        except OSError as error:
            raise CommandError(f"{command}: cannot be started: {error.strerror}") from error
        with _lock:
            _children.append(_Child(child, frozenset(f"{name}={value}" for name, value in command.env.items())))
        return child.pid

    def running(self, marker: str) -> list[int]:
        """See `Effects.running`."""
        _reap()
        wanted = marker.encode()
        with _lock:  # the kernel shows the environment of a process a moment after its start
            own = {child.process.pid for child in _children if marker in child.environment}
        found = own | {pid for pid in _pids() if wanted in _environment(pid)}
        times = {pid: self.started(pid) for pid in found}
        return [pid for _, pid in sorted((time, pid) for pid, time in times.items() if time is not None)]

    def started(self, pid: int) -> int | None:
        """See `Effects.started`."""
        try:
            state, *rest = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(") ")[2].split()
        except OSError:
            return None
        return None if state in _ENDED else int(rest[_START_TIME])

    def kill(self, pids: Sequence[int], *, force: bool = False) -> None:
        """See `Effects.kill`."""
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)
            except ProcessLookupError:
                continue
        _reap()


def children() -> list[int]:
    """The pids of all programs and daemons that this process started and that have not ended."""
    _reap()
    with _lock:
        return [child.process.pid for child in _children]


def _abandon(process: subprocess.Popen[str]) -> None:
    """Kill a program and everything it started. If it hangs in the kernel, do not wait for it: reap it later."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):  # what it has not read is lost
                pipe.close()
    try:
        process.wait(_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        with _lock:
            _children.append(_Child(process, frozenset()))


def _reap() -> None:
    """A child that has ended stays a zombie until its status is read."""
    with _lock:
        _children[:] = [child for child in _children if child.process.poll() is None]


def _pids() -> list[int]:
    return [int(path.name) for path in _PROC.iterdir() if path.name.isdecimal()]


def _environment(pid: int) -> frozenset[bytes]:
    try:
        return frozenset((_PROC / str(pid) / "environ").read_bytes().split(b"\0"))
    except OSError:  # it ended, or belongs to another user
        return frozenset()


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """A node and the means to act on it. Paths of the host are strings, as containers and their runtime know them.

    root: where the host's root is mounted; `/` on the host itself.
    effects: what is done to the node.
    clock: the time of the current call.
    """

    root: Path
    effects: Effects
    clock: Clock = field(default_factory=Clock)

    def within(self, seconds: float) -> Self:
        """The same node for a call that may take `seconds`, all its waits together."""
        return replace(self, clock=self.clock.within(seconds))

    @property
    def host(self) -> Host:
        """The host for the readers of `/sys`, `/proc` and `/dev`."""
        return Host(self.root)

    @property
    def boot_id(self) -> str:
        """The id of the current boot; empty if the kernel does not report it."""
        return optional(read_text, self.host.proc / "sys/kernel/random/boot_id") or ""

    def local(self, path: str) -> Path:
        """The path at which this process finds a file of the host."""
        return Path(path) if self.root == Path("/") else follow(self.root, path)

    def run(self, command: Command) -> str:
        """Run a program in the time that is left, and return its output. Raises CommandError."""
        timeout = max(self.clock.left(command.timeout), _SHORTEST)
        return self.effects.run(replace(command, timeout=timeout))

    def run_on_host(self, *argv: str) -> str:
        """Run a program of the host in its root. Raises CommandError."""
        return self.run(Command(argv if self.root == Path("/") else ["chroot", str(self.root), *argv]))
