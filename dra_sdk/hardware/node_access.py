"""Acting on a node: writing files of the kernel, running programs, starting and ending daemons, all with a deadline.

`NodeEffects` is one narrow protocol, so that a test can record, refuse or imitate each action. `NodeAccess` is a node
with its root, its effects and the time of a call.

The kernel may never return from a write to sysfs, for example if a device that is bound to a driver does not answer. A
process that waits for that cannot be killed. So a child process writes: when its time is over, the caller gets an
error, and the child is left to the kernel. `NodeEffects.pending` lists these writes, also those of an earlier process.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import DEVNULL, PIPE
from threading import Lock
from typing import Any, Final, Protocol, Self

from dra_sdk.errors import RetriableError
from dra_sdk.hardware.child import write as write_file
from dra_sdk.hardware.host import read_if_exists, read_text
from dra_sdk.hardware.host_paths import follow
from dra_sdk.hardware.polling import Clock
from dra_sdk.model.driver import Host

log = logging.getLogger(__name__)
_PROC: Final = Path("/proc")
_OF_ALL_DEVICES: Final = frozenset({"bind", "unbind"})
_SHOWN: Final = 500  # characters of a program's output in an error
_ENDED: Final = frozenset("ZX")
# Indexes among the fields of a process after its state, see proc_pid_stat(5): ppid, starttime, startcode, and env_start
# with env_end.
_PARENT: Final = 0
_START_TIME: Final = 18
_START_CODE: Final = 22
_ENVIRONMENT: Final = slice(46, 48)
_KILL_SECONDS: Final = 1.0  # from SIGKILL to the end of a process that does not hang in the kernel
_EXEC_SECONDS: Final = 1.0  # from the old program of a process to its new one
_EXEC_PAUSE: Final = 0.00005  # seconds after the first look; each further pause is half as long again, so that a
_EXEC_GROWTH: Final = 1.5  # process that executes one program after another is not seen at the same point each time
_SHORTEST: Final = 1.0  # seconds for an action although the call has ended: it may be one that undoes something
WRITE_SECONDS: Final = 20.0
"""How long the kernel may take for a write. Binding a device that works takes a few seconds."""
_WRITING: Final = "DRA_SDK_WRITING"  # a variable of a child that writes: the file and the text
_CHILD: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("child.py")))
_lock = Lock()
_children: list[_Child] = []  # of this process, not of a SystemEffects: daemons outlive what started them
_pending: list[PendingWrite] = []


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
    cgroups: the directories of cgroups that a daemon enters before it starts (`dra_sdk.hardware.cgroups`).
    cgroup_namespace: the file of the cgroup namespace that has these cgroups; empty for that of this process.
    """

    argv: Sequence[str]
    stdin: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 20.0
    cgroups: Sequence[Path] = ()
    cgroup_namespace: str = ""

    def __str__(self) -> str:
        stdin = f" ({self.stdin.strip()})" if self.stdin else ""
        return " ".join(self.argv) + stdin


class CommandError(RetriableError):
    """A program could not be run, took too long, or ended with a status other than 0."""


class WriteError(RetriableError):
    """The kernel refused what was written to one of its files, or did not return from the write."""


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A write from which the kernel did not return in time, and has not returned yet.

    path: the file.
    text: what is written.
    pid: the process that writes.
    started: its start time, see `NodeEffects.started`.
    """

    path: Path
    text: str
    pid: int
    started: int

    @property
    def seconds(self) -> float:
        """For how long it has been writing."""
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - self.started / os.sysconf("SC_CLK_TCK"))

    def __str__(self) -> str:
        seconds = f"{self.seconds:.0f} s"
        return f"process {self.pid} has been writing {self.text.strip()!r} to {self.path} for {seconds}"


class NodeEffects(Protocol):
    """What can be done to a node."""

    def write(self, path: Path, text: str, timeout: float | None = None) -> None:
        """Write to a file of sysfs or procfs in one call. Raises WriteError with the file.

        With a `timeout` in seconds a child process writes. If the kernel has not returned by then, WriteError says so,
        and `pending` lists the write until the kernel returns. Until then, another write to the file is refused.
        Without a `timeout` this process writes: use that only for files whose write cannot block.
        """

    def pending(self) -> list[PendingWrite]:
        """Return the writes from which the kernel has not returned after their time was over."""

    def is_mount(self, path: Path) -> bool:
        """Return whether a file system is mounted at a directory."""

    def run(self, command: Command) -> str:
        """Run a program to its end and return its output. Raises CommandError with what it printed."""

    def start(self, command: Command, log: Path) -> int:
        """Start a daemon, which outlives this process, and return its pid; `log` gets its output. CommandError."""

    def running(self, marker: str) -> list[int]:
        """Return the processes with `marker` (`NAME=value`) in their environment, of any parent, the oldest first."""

    def started(self, pid: int) -> int | None:
        """Return when this process was started, in ticks since boot: unique with its pid. None if it has ended."""

    def kill(self, pids: Sequence[int], *, force: bool = False) -> None:
        """End processes by SIGTERM, with `force` by SIGKILL; a process that has ended is no error."""


class SystemEffects:
    """`NodeEffects` on the machine on which this process runs."""

    def write(self, path: Path, text: str, timeout: float | None = None) -> None:
        """See `NodeEffects.write`."""
        failed = f"cannot write {text.strip()!r} to {path}"
        if timeout is not None:
            check_not_pending(self, path, text)
            self._write_in_child(path, text, timeout, failed)
            return
        try:
            write_file(str(path), text)
        except OSError as error:
            raise WriteError(f"{failed}: {error.strerror}") from error

    def pending(self) -> list[PendingWrite]:
        """See `NodeEffects.pending`."""
        _reap()
        others = [write for pid in _pids() if (write := self._of_another(pid))]
        with _lock:
            _pending[:] = [write for write in _pending if self.started(write.pid) == write.started]
            return [*_pending, *others]

    def is_mount(self, path: Path) -> bool:
        """See `NodeEffects.is_mount`."""
        return path.is_mount()

    def run(self, command: Command) -> str:
        """See `NodeEffects.run`."""
        _reap()
        try:
            streams = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
            process: subprocess.Popen[str] = _spawn(command.argv, command.env, **streams, text=True, errors="replace")
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
        """See `NodeEffects.start`."""
        _reap()
        try:
            with log.open("ab") as output:
                child = _spawn(_in_cgroups(command), command.env, stdin=DEVNULL, stdout=output, stderr=output)
        except OSError as error:
            raise CommandError(f"{command}: cannot be started: {error.strerror}") from error
        with _lock:
            _children.append(_Child(child, frozenset(f"{name}={value}" for name, value in command.env.items())))
        return child.pid

    def running(self, marker: str) -> list[int]:
        """See `NodeEffects.running`."""
        _reap()
        wanted = marker.encode()
        with _lock:  # the kernel shows the environment of a process a moment after its start
            own = {child.process.pid for child in _children if marker in child.environment}
        pids = own | {pid for pid in _pids() if wanted in _environment(pid)}
        times = {pid: self.started(pid) for pid in pids}
        return [pid for _, pid in sorted((time, pid) for pid, time in times.items() if time is not None)]

    def started(self, pid: int) -> int | None:
        """See `NodeEffects.started`."""
        fields = _stat(pid)
        return int(fields[_START_TIME]) if fields else None

    def kill(self, pids: Sequence[int], *, force: bool = False) -> None:
        """See `NodeEffects.kill`."""
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)
            except ProcessLookupError:
                continue
        _reap()

    def _write_in_child(self, path: Path, text: str, timeout: float, failed: str) -> None:
        argv, env = [*_CHILD, "write", str(path), text], {_WRITING: f"{path}\n{text}"}
        child = _spawn(argv, env, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, text=True)
        started = self.started(child.pid)
        try:
            _, errors = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise WriteError(f"{failed}: the kernel did not return within {timeout:.0f} s") from None
        finally:
            if child.returncode is None and _abandon(child) and started is not None:
                write = PendingWrite(path, text, child.pid, started)
                log.warning("the kernel does not return: %s", write)
                with _lock:
                    _pending.append(write)
        if child.returncode:
            raise WriteError(f"{failed}: {errors.strip()}")

    def _of_another(self, pid: int) -> PendingWrite | None:
        """Return the write of a child of another process of the driver: an earlier one, or the next in an update."""
        name = _WRITING.encode() + b"="
        value = next((variable for variable in _environment(pid) if variable.startswith(name)), None)
        fields, started = _stat(pid), self.started(pid)
        if value is None or not fields or started is None or int(fields[_PARENT]) == os.getpid():
            return None
        path, _, text = os.fsdecode(value.removeprefix(name)).partition("\n")
        return PendingWrite(Path(path), text, pid, started)


def check_not_pending(effects: NodeEffects, path: Path, text: str) -> None:
    """Raise WriteError if a write to the file is pending: the kernel may carry it out after this one.

    The files of a driver by which all its devices are bound are an exception: there, only the same device is refused.
    """
    for write in effects.pending():
        if write.path == path and (path.name not in _OF_ALL_DEVICES or write.text == text):
            raise WriteError(f"cannot write {text.strip()!r} to {path}: {write}")


def children() -> list[int]:
    """Return the pids of all programs and daemons that this process started and that have not ended."""
    _reap()
    with _lock:
        return [child.process.pid for child in _children]


def _spawn(argv: Sequence[str], env: Mapping[str, str], **streams: Any) -> subprocess.Popen[Any]:
    """Start a program in a session of its own, with these variables beside those of this process."""
    return subprocess.Popen(argv, env={**os.environ, **env}, start_new_session=True, **streams)


def _abandon(process: subprocess.Popen[str]) -> bool:
    """Kill a program and everything it started. If it hangs in the kernel, leave it to be reaped later: True."""
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
        return True
    return False


def _in_cgroups(command: Command) -> Sequence[str]:
    if not command.cgroups:
        return command.argv
    cgroups = [str(cgroup) for cgroup in command.cgroups]
    return [*_CHILD, "enter", command.cgroup_namespace, str(len(cgroups)), *cgroups, *command.argv]


def _reap() -> None:
    """Read the status of the children that have ended: until then they stay zombies."""
    with _lock:
        _children[:] = [child for child in _children if child.process.poll() is None]


def _pids() -> list[int]:
    return [int(path.name) for path in _PROC.iterdir() if path.name.isdecimal()]


def _stat(pid: int) -> list[str]:
    """Return the fields of a process after its state; empty if it has ended."""
    try:
        state, *fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(") ")[2].split()
    except OSError:
        return []
    return [] if state in _ENDED else fields


def _environment(pid: int) -> frozenset[bytes]:
    """Return the variables of a process; none if it ended or belongs to another user.

    While a process executes a new program, the kernel shows no variables. It stores `startcode` after them, so that is
    waited for: a daemon must not be missed. A kernel thread has neither, too, but no program.
    """
    process = _PROC / str(pid)
    deadline, pause = time.monotonic() + _EXEC_SECONDS, _EXEC_PAUSE
    try:
        while not (variables := (process / "environ").read_bytes()) and time.monotonic() < deadline:
            (process / "exe").readlink()
            if not (fields := _stat(pid)) or (fields[_START_CODE] != "0" and len(set(fields[_ENVIRONMENT])) == 1):
                break
            time.sleep(pause)
            pause *= _EXEC_GROWTH
    except OSError:
        return frozenset()
    return frozenset(variables.split(b"\0"))


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """A node and the means to act on it. Paths of the host are strings, as containers and their runtime know them.

    root: where the host's root is mounted; `/` on the host itself.
    effects: what is done to the node.
    clock: the time of the current call.
    """

    root: Path
    effects: NodeEffects
    clock: Clock = field(default_factory=Clock)

    def within(self, seconds: float) -> Self:
        """Return the same node for a call that may take `seconds`, all its waits together."""
        return replace(self, clock=self.clock.within(seconds))

    @property
    def host(self) -> Host:
        """The host for the readers of `/sys`, `/proc` and `/dev`."""
        return Host(self.root)

    @property
    def boot_id(self) -> str:
        """The id of the current boot; empty if the kernel does not report it."""
        return read_if_exists(read_text, self.host.proc / "sys/kernel/random/boot_id") or ""

    def local(self, path: str) -> Path:
        """Return the path at which this process finds a file of the host."""
        return Path(path) if self.root == Path("/") else follow(self.root, path)

    def write(self, path: Path, text: str, seconds: float = WRITE_SECONDS) -> None:
        """Write to a file of sysfs or procfs in a child process, within `seconds` and the time that is left.

        Raises WriteError with file and text, also if the kernel does not return in time; see `NodeEffects.write`.
        """
        self.effects.write(path, text, max(self.clock.left(seconds), _SHORTEST))

    def run(self, command: Command) -> str:
        """Run a program in the time that is left, and return its output. Raises CommandError."""
        timeout = max(self.clock.left(command.timeout), _SHORTEST)
        return self.effects.run(replace(command, timeout=timeout))

    def run_on_host(self, *argv: str) -> str:
        """Run a program of the host in its root. Raises CommandError."""
        return self.run(Command(argv if self.root == Path("/") else ["chroot", str(self.root), *argv]))
