"""MPS daemons: one for the devices of a claim that one configuration applies to, as a process that we look after.

Everything about a daemon lies in a directory of its own, `<state>/mps/<id>/`, which exists from before it starts until
after it has ended: `pipe`, `log` and `shm` are its own; `daemon.json` says what it is for, for as long as it should
run. The process is found by a variable in its environment, so one that outlived a restart of ours is simply found
again. The lock of a daemon is on its directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from dra_driver_gpu.effects import Command, CommandError
from dra_driver_gpu.site import Site
from dra_sdk import DraError, HardwareError, RetriableError
from dra_sdk.hardware import read_text

log = logging.getLogger(__name__)
STEP: Final = "mps"
CONTROL: Final = "nvidia-cuda-mps-control"
_FILE: Final = "daemon.json"
_MARKER: Final = "DRA_GPU_MPS_DAEMON"
_END_SECONDS: Final = 5.0
_LOG_SHOWN: Final = 300
_PRIVATE: Final = 'mount --bind "$0" "$1" && shift && exec "$@"'


@dataclass(frozen=True, slots=True)
class Daemon:
    """What a daemon is for: `devices` are UUIDs, `limits` memory limits by UUID, `percentage` of multiprocessors."""

    claim: str
    devices: Sequence[str]
    percentage: int | None = None
    limits: Mapping[str, str] = field(default_factory=dict)
    multi_user: bool = False

    @property
    def id(self) -> str:
        """The claim's UID and a part that tells its daemons apart."""
        digest = hashlib.sha256(",".join(sorted(self.devices)).encode()).hexdigest()
        return f"{self.claim}-{digest[:5]}"


class MpsDaemons:
    """The daemons of a node."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._base = f"{site.settings.state_dir}/mps"

    def host_directory(self, daemon_id: str, name: str) -> str:
        """The directory `pipe`, `shm` or `log` of a daemon, as a path of the host."""
        if name == "shm" and self._site.settings.mps_shm == "host":
            return "/dev/shm"  # noqa: S108 (the place itself is meant)
        return f"{self._base}/{daemon_id}/{name}"

    def start(self, daemon: Daemon) -> None:
        """Start a daemon and wait until it answers, then set its limits; nothing to do for what runs already.

        RetriableError with the end of its log where it does not come up; then `stop` it.
        """
        directory = self._directory(daemon.id)
        for name in ("pipe", "log", "shm"):
            (directory / name).mkdir(mode=0o755, parents=True, exist_ok=True)
        with _locked(directory):
            self._bring_up(daemon)
            told = {**asdict(daemon), "boot": self._site.boot_id}
            (directory / _FILE).write_text(json.dumps(told), encoding="utf-8")

    def stop(self, daemon_id: str) -> None:
        """End a daemon and remove what is its; nothing to do for one that is gone. RetriableError if it stays."""
        directory = self._directory(daemon_id)
        if not directory.exists():
            return
        with _locked(directory):
            (directory / _FILE).unlink(missing_ok=True)
            if self._running(daemon_id):
                with suppress(CommandError, HardwareError):  # a daemon that does not listen is ended by signals
                    self._site.effects.run(self._control(daemon_id, "quit"))
                self._end(daemon_id)
            self._unmount_shm(daemon_id)
            shutil.rmtree(directory)

    def leftovers(self) -> Iterator[str]:
        """The ids of all directories, also of those whose start was interrupted."""
        return (path.name for path in sorted(self._site.here(self._base).glob("*")))

    def revive(self) -> int:
        """Start again what should run and does not; how many. What fails is logged and tried at the next call."""
        paths = sorted(self._site.here(self._base).glob(f"*/{_FILE}"))
        return sum(self._revive(path.parent) for path in paths)

    def _revive(self, directory: Path) -> bool:
        try:
            with _locked(directory):
                daemon = self._told(directory / _FILE)
                if daemon is None or self._running(daemon.id):
                    return False
                self._bring_up(daemon)
        except (DraError, OSError, ValueError, TypeError) as error:
            log.warning("the MPS daemon %s cannot be started again: %s", directory.name, error)
            return False
        log.warning("the MPS daemon of claim %s had ended and was started again", daemon.claim)
        return True

    def _told(self, path: Path) -> Daemon | None:
        """What a file says; None if it is gone, or of an earlier boot: then its claim is set up afresh."""
        if not path.exists():
            return None
        told = json.loads(path.read_text(encoding="utf-8"))
        return Daemon(**told) if told.pop("boot", None) == self._site.boot_id else None

    def _bring_up(self, daemon: Daemon) -> None:
        if not self._running(daemon.id):
            self._mount_shm(daemon.id)
            self._site.effects.start(self._daemon(daemon), self._directory(daemon.id) / "log" / "output.log")
        if not self._site.clock.until(lambda: self._answers(daemon.id), self._site.settings.mps_seconds):
            raise RetriableError(f"the MPS daemon does not answer: {self._said(daemon.id)}")
        for order in _orders(daemon):
            self._site.effects.run(self._control(daemon.id, order))

    def _directory(self, daemon_id: str) -> Path:
        return self._site.here(f"{self._base}/{daemon_id}")

    def _running(self, daemon_id: str) -> list[int]:
        return self._site.effects.running(f"{_MARKER}={daemon_id}")

    def _environment(self, daemon_id: str) -> dict[str, str]:
        names = {"CUDA_MPS_PIPE_DIRECTORY": "pipe", "CUDA_MPS_LOG_DIRECTORY": "log"}
        seen = self._site.seen_by_tools
        return {name: seen(f"{self._base}/{daemon_id}/{place}") for name, place in names.items()}

    def _control(self, daemon_id: str, order: str) -> Command:
        return self._site.tool(CONTROL, stdin=f"{order}\n", env=self._environment(daemon_id))

    def _daemon(self, daemon: Daemon) -> Command:
        own = {"CUDA_VISIBLE_DEVICES": ",".join(sorted(daemon.devices)), _MARKER: daemon.id}
        options = ["-f", *(["-M"] if daemon.multi_user else [])]
        command = self._site.tool(CONTROL, *options, env={**self._environment(daemon.id), **own})
        if self._site.settings.mps_shm == "host":
            return command
        source = str(self._site.here(self.host_directory(daemon.id, "shm")))
        target = str(self._site.here("/dev/shm")) if self._site.whole_host else "/dev/shm"  # noqa: S108
        inside = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _PRIVATE, source, target]
        return Command([*inside, *command.argv], env=command.env)

    def _answers(self, daemon_id: str) -> bool:
        if not self._running(daemon_id):
            raise RetriableError(f"the MPS daemon ended at once: {self._said(daemon_id)}")
        try:
            self._site.effects.run(self._control(daemon_id, "get_default_active_thread_percentage"))
        except CommandError:
            return False
        return True

    def _end(self, daemon_id: str) -> None:
        for force in (False, True):
            if self._site.clock.until(lambda: not self._running(daemon_id), _END_SECONDS / 5):
                return
            self._site.effects.kill(self._running(daemon_id), force=force)
        if not self._site.clock.until(lambda: not self._running(daemon_id), _END_SECONDS):
            raise RetriableError(f"the MPS daemon {daemon_id} does not end")

    def _said(self, daemon_id: str) -> str:
        directory = self._directory(daemon_id) / "log"
        lines = [
            path.read_text(errors="replace")
            for path in (directory / "control.log", directory / "output.log")
            if path.exists()
        ]
        return " ".join(" ".join(lines).split())[-_LOG_SHOWN:] or "it said nothing"

    def _mount_shm(self, daemon_id: str) -> None:
        """Half of the node's memory, as the kernel gives `/dev/shm` itself; it becomes real only as it is used."""
        place = str(self._directory(daemon_id) / "shm")
        if self._site.settings.mps_shm == "private" and not _mounted(place):
            options = f"rw,nosuid,nodev,noexec,relatime,size={_memory_bytes(self._site) // 2}"
            self._site.effects.run(Command(["mount", "-t", "tmpfs", "-o", options, "shm", place]))

    def _unmount_shm(self, daemon_id: str) -> None:
        place = str(self._directory(daemon_id) / "shm")
        if _mounted(place):
            self._site.effects.run(Command(["umount", place]))


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _orders(daemon: Daemon) -> Iterator[str]:
    if daemon.percentage is not None:
        yield f"set_default_active_thread_percentage {daemon.percentage}"
    for uuid, limit in sorted(daemon.limits.items()):
        yield f"set_default_device_pinned_mem_limit {uuid} {limit}"


def _mounted(place: str) -> bool:
    return any(line.split()[4] == place for line in read_text(Path("/proc/self/mountinfo")).splitlines())


def _memory_bytes(site: Site) -> int:
    for line in read_text(site.host.proc / "meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0]) * 1024
    raise HardwareError(f"{site.host.proc / 'meminfo'}: tells no MemTotal")


def journal_entry(daemon: Daemon) -> dict[str, Any]:
    """What a claim's journal keeps before the daemon is started."""
    return {"step": STEP, "id": daemon.id}
