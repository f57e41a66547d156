"""Everything the driver does to a node besides NVML: writing files of the kernel, running tools, starting daemons.

One narrow protocol, so that a test can see, refuse or imitate each of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol

from dra_sdk import RetriableError

_PROC: Final = Path("/proc")
_SHOWN: Final = 500
_ENDED: Final = frozenset("ZX")
_START: Final = 18  # of the fields of `stat` after the state, see proc_pid_stat(5)
_GRACE: Final = 1.0  # seconds from SIGKILL to the end of a process that the kernel does not hold
_lock = Lock()
_children: list[_Child] = []  # of the process: a daemon outlives whoever started it, a tool whoever waited for it


@dataclass(frozen=True, slots=True)
class _Child:
    process: subprocess.Popen[Any]
    environment: frozenset[str]


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments, what it reads, and what is added to our environment for it; `timeout` in s."""

    argv: Sequence[str]
    stdin: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 20.0

    def __str__(self) -> str:
        told = f" ({self.stdin.strip()})" if self.stdin else ""
        return " ".join(self.argv) + told


class CommandError(RetriableError):
    """A tool could not be run, took too long, or ended with another status than 0."""


class WriteError(RetriableError):
    """The kernel refused what was written to one of its files."""


class Effects(Protocol):
    """What can be done to a node."""

    def write(self, path: Path, text: str) -> None:
        """Write to a file of sysfs or procfs in one call. WriteError names the file."""

    def run(self, command: Command) -> str:
        """Run a tool to its end, or to its time limit, and give its output. CommandError tells what it said."""

    def start(self, command: Command, log: Path) -> int:
        """Start a daemon, which outlives us, and give its pid; its output goes to `log`. Raises CommandError."""

    def running(self, marker: str) -> list[int]:
        """Processes whose environment has `marker` (`NAME=value`), whoever started them, the oldest first."""

    def started(self, pid: int) -> int | None:
        """When this process was started, in ticks since boot: with its pid never another's. None if it has ended."""

    def kill(self, pids: Sequence[int], *, force: bool = False) -> None:
        """End processes, by SIGTERM or SIGKILL; those that are gone are no error."""


class SystemEffects:
    """`Effects` on the machine that we run on."""

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
            said = " ".join(f"{errors} {output}".split())[:_SHOWN]
            raise CommandError(f"{command}: status {process.returncode}: {said or 'said nothing'}")
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
        with _lock:  # the kernel shows the environment of a process a moment after it was started
            own = {child.process.pid for child in _children if marker in child.environment}
        found = own | {pid for pid in _pids() if wanted in _environment(pid)}
        began = {pid: self.started(pid) for pid in found}
        return [pid for _, pid in sorted((start, pid) for pid, start in began.items() if start is not None)]

    def started(self, pid: int) -> int | None:
        """See `Effects.started`."""
        try:
            state, *rest = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(") ")[2].split()
        except OSError:
            return None
        return None if state in _ENDED else int(rest[_START])

    def kill(self, pids: Sequence[int], *, force: bool = False) -> None:
        """See `Effects.kill`."""
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)
            except ProcessLookupError:
                continue
        _reap()


def _abandon(process: subprocess.Popen[str]) -> None:
    """Kill a tool with all that it started. One that hangs in the kernel ends later, and nobody waits for it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):  # what it was to read is lost with it
                pipe.close()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        with _lock:
            _children.append(_Child(process, frozenset()))


def _reap() -> None:
    """A child that ended stays a zombie until it was asked for."""
    with _lock:
        _children[:] = [child for child in _children if child.process.poll() is None]


def _pids() -> list[int]:
    return [int(path.name) for path in _PROC.iterdir() if path.name.isdecimal()]


def _environment(pid: int) -> frozenset[bytes]:
    try:
        return frozenset((_PROC / str(pid) / "environ").read_bytes().split(b"\0"))
    except OSError:  # it ended, or is somebody else's
        return frozenset()
