"""Supervised daemons: processes that run for as long as a claim needs them, across restarts of the driver.

Each daemon has a directory `<base>/<id>/`, from before its start until after its end. `daemon.json` there says what the
daemon is for, for as long as it should run. The lock of a daemon is on its directory.

A daemon is found by a variable in its environment, `<marker>=<id>`, so that it is found again after a restart of the
driver. That means reading the environment of every process, so `daemon.json` also has the pid and the start time.

A daemon runs in a cgroup of its own (`dra_sdk.hardware.cgroups`), so it also outlives the driver's container.
"""

from __future__ import annotations

import json
import logging
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from dra_sdk.errors import DraError, RetriableError
from dra_sdk.hardware.cgroups import Cgroup
from dra_sdk.hardware.node_access import Command, NodeAccess
from dra_sdk.hardware.records import locked

log = logging.getLogger(__name__)
PROBE_SECONDS: Final = 60.0
_FILE: Final = "daemon.json"
_QUIT_SECONDS: Final = 1.0  # for a daemon to end after it was asked to, and after SIGTERM
_KILL_SECONDS: Final = 5.0  # for a daemon to end after SIGKILL
_LOG_SHOWN: Final = 300  # characters of its log in an error
_MISSES: Final = 2  # probes in a row: a daemon that is starting a server answers late


@dataclass(frozen=True, slots=True)
class DaemonSpec(ABC):
    """What a daemon is for. A subclass adds what its kind needs, in fields that JSON can hold.

    claim: UID of the claim that it belongs to.
    devices: UUIDs of the devices that it serves.
    process: its pid and its start time (see `NodeEffects.started`); empty if they are not known.
    """

    claim: str
    devices: Sequence[str]
    process: Sequence[int] = ()

    @property
    @abstractmethod
    def id(self) -> str:
        """The name of its directory: the same for the same claim and devices."""


S = TypeVar("S", bound=DaemonSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonKind(Generic[S]):
    """How daemons of one kind are started, asked and ended.

    name: what errors and the log call such a daemon.
    spec: the subclass of `DaemonSpec`.
    marker: the variable that has the daemon's id in its environment.
    directories: directories below its own that it needs; `log` must be one of them.
    logs: log files below `log`, whose end is shown in an error.
    start_seconds: how long it may take until it answers.
    command: the command that runs it in the foreground.
    before_start: prepares the start, in its directory.
    probe: asks the daemon whether it works; raises DraError if it does not answer.
    configure: sends its configuration once it answers; raises DraError.
    quit: asks it to end; no error if it does not answer.
    after_end: undoes `before_start`.
    """

    name: str
    spec: type[S]
    marker: str
    directories: Sequence[str]
    logs: Sequence[str]
    start_seconds: float
    command: Callable[[S], Command]
    before_start: Callable[[str], None]
    probe: Callable[[str], None]
    configure: Callable[[S], None]
    quit: Callable[[str], None]
    after_end: Callable[[str], None]


class Daemons(Generic[S]):
    """The daemons of one kind on a node; `base` is their directory, as a path of the host."""

    def __init__(self, node: NodeAccess, base: str, kind: DaemonKind[S]) -> None:
        self._node, self._base, self._kind = node, base, kind

    @property
    def name(self) -> str:
        """What errors and the log call such a daemon."""
        return self._kind.name

    def start(self, spec: S) -> None:
        """Start a daemon, wait until it answers and configure it; nothing to do if it runs.

        Raises RetriableError with the end of its log if it does not come up; then `stop` it.
        """
        directory = self.directory(spec.id)
        for name in self._kind.directories:
            (directory / name).mkdir(mode=0o755, parents=True, exist_ok=True)
        with locked(directory, self._node.clock):
            self._bring_up(spec)

    def stop(self, daemon_id: str) -> None:
        """End a daemon and remove its directory: `end` and `clear`."""
        self.end(daemon_id)
        self.clear(daemon_id)

    def end(self, daemon_id: str) -> None:
        """End a daemon; nothing to do if there is none. Raises RetriableError if it stays."""
        directory = self.directory(daemon_id)
        if not directory.exists():
            return
        with locked(directory, self._node.clock):
            (directory / _FILE).unlink(missing_ok=True)
            if self.processes(daemon_id):
                self._kind.quit(daemon_id)
                self._end(daemon_id)

    def clear(self, daemon_id: str) -> None:
        """Remove what a daemon that has ended left on the node: its cgroup, its mounts and its directory."""
        directory = self.directory(daemon_id)
        if not directory.exists():
            return
        with locked(directory, self._node.clock):
            self._cgroup(daemon_id).remove()
            self._kind.after_end(daemon_id)
            shutil.rmtree(directory)

    def ids(self) -> Iterator[str]:
        """Return the ids of all daemons, also of those whose start was interrupted."""
        return (path.name for path in sorted(self._node.local(self._base).glob("*")))

    def wanted(self) -> list[S]:
        """Return the daemons that should run, whether they do or not. An unreadable file is logged and left out."""
        specs = []
        for path in sorted(self._node.local(self._base).glob(f"*/{_FILE}")):
            try:
                specs += self._read(path)
            except (OSError, ValueError, TypeError) as error:
                log.warning("the %s %s is not supervised: %s", self._kind.name, path.parent.name, error)
        return specs

    def revive(self, spec: S) -> bool:
        """Start a daemon again if it has ended; True if so. A failure is logged; the next call tries again."""
        if self._runs(spec):
            return False
        directory = self.directory(spec.id)
        try:
            with locked(directory, self._node.clock):
                if not self._read(directory / _FILE):  # it was stopped
                    return False
                self._bring_up(spec)
        except (DraError, OSError) as error:
            log.warning("the %s %s cannot be started again: %s", self._kind.name, spec.id, error)
            return False
        log.warning("the %s of claim %s had ended and was started again", self._kind.name, spec.claim)
        return True

    def trouble(self, spec: S) -> str:
        """Return why a daemon does not answer; empty if it answers."""
        try:
            self._kind.probe(spec.id)
        except DraError as error:
            return str(error)
        return ""

    def processes(self, daemon_id: str) -> list[int]:
        """Return the pids of a daemon, the oldest first, and of what it started, anywhere in its cgroup."""
        marked = self._node.effects.running(f"{self._kind.marker}={daemon_id}")
        return [*marked, *(pid for pid in self._cgroup(daemon_id).processes() if pid not in marked)]

    def directory(self, daemon_id: str) -> Path:
        """Return the directory of a daemon, as this process finds it."""
        return self._node.local(f"{self._base}/{daemon_id}")

    def _read(self, path: Path) -> list[S]:
        """Return the spec in a file; none without a file, or of an earlier boot: then its claim is prepared again."""
        if not path.exists():
            return []
        kept = json.loads(path.read_text(encoding="utf-8"))
        return [self._kind.spec(**kept)] if kept.pop("boot", None) == self._node.boot_id else []

    def _bring_up(self, spec: S) -> None:
        if not self._runs(spec):
            spec = self._find(spec) or self._launch(spec)
        try:
            if not self._node.clock.until(lambda: self._answers(spec), self._kind.start_seconds):
                raise RetriableError(f"the {self._kind.name} does not answer: {self._log(spec.id)}")
            self._kind.configure(spec)
            self._cgroup(spec.id).check(spec.process[0])
        except DraError:  # with only a part of its configuration it is useless
            self._node.effects.kill(spec.process[:1], force=True)
            raise
        kept = {**asdict(spec), "boot": self._node.boot_id}
        (self.directory(spec.id) / _FILE).write_text(json.dumps(kept), encoding="utf-8")

    def _find(self, spec: S) -> S | None:
        """Return the spec with the process that an interrupted start left; None if there is none.

        If `spec` names a process, that process has ended, and a server that outlives it has the same environment: so
        do not search.
        """
        pids = [] if spec.process else self._node.effects.running(f"{self._kind.marker}={spec.id}")
        return self._with_process(spec, pids[0]) if pids else None

    def _launch(self, spec: S) -> S:
        self._kind.before_start(spec.id)
        output = self.directory(spec.id) / "log" / "output.log"
        command = self._cgroup(spec.id).enclose(self._kind.command(spec))
        return self._with_process(spec, self._node.effects.start(command, output))

    def _cgroup(self, daemon_id: str) -> Cgroup:
        return Cgroup(self._node, f"{self._kind.marker.lower()}-{daemon_id}")

    def _with_process(self, spec: S, pid: int) -> S:
        return replace(spec, process=(pid, self._node.effects.started(pid) or 0))

    def _runs(self, spec: S) -> bool:
        return bool(spec.process) and self._node.effects.started(spec.process[0]) == spec.process[1]

    def _answers(self, spec: S) -> bool:
        if not self._runs(spec):
            raise RetriableError(f"the {self._kind.name} ended at once: {self._log(spec.id)}")
        return not self.trouble(spec)

    def _end(self, daemon_id: str) -> None:
        for force in (False, True):
            if self._ended(daemon_id, _QUIT_SECONDS):
                return
            self._node.effects.kill(self.processes(daemon_id), force=force)
        if not self._ended(daemon_id, _KILL_SECONDS):
            raise RetriableError(f"the {self._kind.name} {daemon_id} does not end")

    def _ended(self, daemon_id: str, seconds: float) -> bool:
        return self._node.clock.until(lambda: not self.processes(daemon_id), seconds)

    def _log(self, daemon_id: str) -> str:
        paths = [self.directory(daemon_id) / "log" / name for name in (*self._kind.logs, "output.log")]
        text = " ".join(path.read_text(errors="replace") for path in paths if path.exists())
        return " ".join(text.split())[-_LOG_SHOWN:] or "its log is empty"


class DaemonWatch:
    """Supervises the daemons of a node: starts again those that ended, and reports those that do not answer.

    A daemon that does not answer is not ended, because its clients may still work. `troubles` says what is wrong with
    the daemon of a device, by the device's UUID, so that the health of the device shows it.
    """

    def __init__(self) -> None:
        self.troubles: Mapping[str, str] = {}  # replaced, never changed: another thread reads it
        self._misses: dict[str, int] = {}
        self._due = 0.0

    def check(self, daemons: Daemons[Any], now: float) -> None:
        """Revive daemons, and every `PROBE_SECONDS` probe them; call this every few seconds."""
        wanted = daemons.wanted()
        for spec in wanted:
            daemons.revive(spec)
        if now >= self._due:
            self._probe(daemons, wanted)
            self._due = now + PROBE_SECONDS
        served = {uuid for spec in wanted for uuid in spec.devices}
        self.troubles = {uuid: trouble for uuid, trouble in self.troubles.items() if uuid in served}

    def _probe(self, daemons: Daemons[Any], wanted: Sequence[DaemonSpec]) -> None:
        unanswered = {spec.id: trouble for spec in wanted if (trouble := daemons.trouble(spec))}
        self._misses = {daemon_id: self._misses.get(daemon_id, 0) + 1 for daemon_id in unanswered}
        troubles: dict[str, str] = {}
        for spec in wanted:
            if self._misses.get(spec.id, 0) >= _MISSES:
                troubles |= dict.fromkeys(spec.devices, f"its {daemons.name} does not answer: {unanswered[spec.id]}")
                log.warning("the %s of claim %s does not answer: %s", daemons.name, spec.claim, unanswered[spec.id])
        self.troubles = troubles
