"""MPS daemons: for the devices of a claim that one configuration applies to, as processes that we look after.

Everything about a daemon lies in a directory of its own, `<state>/mps/<id>/`, which exists from before it starts until
after it has ended: `pipe`, `log` and `shm` are its own; `daemon.json` says what it is for, for as long as it should
run. The process is found by a variable in its environment, so one that outlived a restart of ours is simply found
again. The lock of a daemon is on its directory.

Looking through the environments of all processes is for when no process is known: `daemon.json` also says which one it
is, by its pid and the time of its start.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from dra_driver_gpu.effects import Command, CommandError
from dra_driver_gpu.nvml.real.binding import LIBRARY_DIRS
from dra_driver_gpu.prepare.locks import locked
from dra_driver_gpu.prepare.mps_daemon import Daemon
from dra_driver_gpu.rooted import follow
from dra_driver_gpu.site import Site
from dra_sdk import DraError, HardwareError, RetriableError
from dra_sdk.hardware import read_text

log = logging.getLogger(__name__)
CONTROL: Final = "nvidia-cuda-mps-control"
_FILE: Final = "daemon.json"
_MARKER: Final = "DRA_GPU_MPS_DAEMON"
_END_SECONDS: Final = 5.0
_LOG_SHOWN: Final = 300
_SECONDS: Final = 5.0  # for the daemon's answer to one order
_SEEN: Final = "/mnt"
"""Where the programs of a driver container see a daemon's directory: in a mount namespace of their own."""
_PRIVATE: Final = 'while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit; shift 2; done; shift; exec "$@"'


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
        with locked(directory, self._site.clock):
            self._bring_up(daemon)

    def stop(self, daemon_id: str) -> None:
        """End a daemon and remove what is its; nothing to do for one that is gone. RetriableError if it stays."""
        directory = self._directory(daemon_id)
        if not directory.exists():
            return
        with locked(directory, self._site.clock):
            (directory / _FILE).unlink(missing_ok=True)
            if self._running(daemon_id):
                with suppress(CommandError, HardwareError):  # a daemon that does not listen is ended by signals
                    self._site.run(self._control(daemon_id, "quit"))
                self._end(daemon_id)
            self._unmount_shm(daemon_id)
            shutil.rmtree(directory)

    def leftovers(self) -> Iterator[str]:
        """The ids of all directories, also of those whose start was interrupted."""
        return (path.name for path in sorted(self._site.here(self._base).glob("*")))

    def kept(self) -> list[Daemon]:
        """Those that should run, whether they do or not. A file that makes no sense is logged and left out."""
        found = []
        for path in sorted(self._site.here(self._base).glob(f"*/{_FILE}")):
            try:
                found += self._told(path)
            except (OSError, ValueError, TypeError) as error:
                log.warning("the MPS daemon %s is not looked after: %s", path.parent.name, error)
        return found

    def revive(self, daemon: Daemon) -> bool:
        """Start a daemon again if it has ended; whether that was so. What fails is logged, to be tried again."""
        if self._runs(daemon):
            return False
        directory = self._directory(daemon.id)
        try:
            with locked(directory, self._site.clock):
                if not self._told(directory / _FILE):  # stopped meanwhile
                    return False
                self._bring_up(daemon)
        except (DraError, OSError) as error:
            log.warning("the MPS daemon %s cannot be started again: %s", daemon.id, error)
            return False
        log.warning("the MPS daemon of claim %s had ended and was started again", daemon.claim)
        return True

    def silent(self, daemon: Daemon) -> str:
        """What is wrong with a daemon that gives no sign of life, in words; empty where it answers."""
        try:
            self._site.run(self._control(daemon.id, "get_server_list"))
        except (CommandError, HardwareError) as error:
            return str(error)
        return ""

    def _told(self, path: Path) -> list[Daemon]:
        """What a file says; nothing if it is gone, or of an earlier boot: then its claim is set up afresh."""
        if not path.exists():
            return []
        told = json.loads(path.read_text(encoding="utf-8"))
        return [Daemon(**told)] if told.pop("boot", None) == self._site.boot_id else []

    def _bring_up(self, daemon: Daemon) -> None:
        if not self._runs(daemon):
            daemon = self._found(daemon) or self._begun(daemon)
        try:
            self._instruct(daemon)
        except DraError:  # with half of its limits, or none, it is none
            self._site.effects.kill(daemon.process[:1], force=True)
            raise
        told = {**asdict(daemon), "boot": self._site.boot_id}
        (self._directory(daemon.id) / _FILE).write_text(json.dumps(told), encoding="utf-8")

    def _instruct(self, daemon: Daemon) -> None:
        if not self._site.clock.until(lambda: self._answers(daemon), self._site.settings.mps_seconds):
            raise RetriableError(f"the MPS daemon does not answer: {self._said(daemon.id)}")
        for order in daemon.orders:
            self._site.run(self._control(daemon.id, order))

    def _found(self, daemon: Daemon) -> Daemon | None:
        """The same with the process that a start left which was interrupted; what is known to have ended left none.

        Servers that outlive their daemon have the same environment.
        """
        pids = [] if daemon.process else self._running(daemon.id)
        return self._with_process(daemon, pids[0]) if pids else None

    def _begun(self, daemon: Daemon) -> Daemon:
        self._mount_shm(daemon.id)
        output = self._directory(daemon.id) / "log" / "output.log"
        return self._with_process(daemon, self._site.effects.start(self._daemon(daemon), output))

    def _with_process(self, daemon: Daemon, pid: int) -> Daemon:
        return replace(daemon, process=(pid, self._site.effects.started(pid) or 0))

    def _runs(self, daemon: Daemon) -> bool:
        return bool(daemon.process) and self._site.effects.started(daemon.process[0]) == daemon.process[1]

    def _directory(self, daemon_id: str) -> Path:
        return self._site.here(f"{self._base}/{daemon_id}")

    def _running(self, daemon_id: str) -> list[int]:
        return self._site.effects.running(f"{_MARKER}={daemon_id}")

    def _environment(self, daemon_id: str) -> dict[str, str]:
        """Where programs of the driver see the directories of a daemon."""
        whole = f"{self._base}/{daemon_id}" if self._site.own_root else str(self._directory(daemon_id))
        base = _SEEN if self._moved else whole
        return {"CUDA_MPS_PIPE_DIRECTORY": f"{base}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{base}/log"}

    @property
    def _moved(self) -> bool:
        """Whether the driver's programs run in the root of a driver container, which lacks the state directory."""
        return self._site.own_root and self._site.settings.driver_root != "/"

    def _control(self, daemon_id: str, order: str) -> Command:
        command = self._site.tool(CONTROL, stdin=f"{order}\n", env=self._environment(daemon_id))
        return replace(_mounted_in(command, self._mounts(daemon_id)), timeout=_SECONDS)

    def _mounts(self, daemon_id: str) -> list[tuple[str, str]]:
        """What is to be seen elsewhere by the driver's programs: a directory, and where."""
        place = str(self._site.driver_root / _SEEN.lstrip("/"))
        return [(str(self._directory(daemon_id)), place)] if self._moved else []

    def _daemon(self, daemon: Daemon) -> Command:
        own = {"CUDA_VISIBLE_DEVICES": ",".join(sorted(daemon.devices)), _MARKER: daemon.id}
        options = ["-f", *(["-M"] if daemon.multi_user else [])]
        environment = {**self._libraries(), **self._environment(daemon.id), **own}
        command = self._site.tool(CONTROL, *options, env=environment)
        return _mounted_in(command, [*self._mounts(daemon.id), *self._shared_memory(daemon.id)])

    def _shared_memory(self, daemon_id: str) -> list[tuple[str, str]]:
        if self._site.settings.mps_shm == "host" and not self._moved:
            return []
        target = str(self._site.driver_root / "dev/shm") if self._site.own_root else "/dev/shm"  # noqa: S108
        return [(str(self._site.here(self.host_directory(daemon_id, "shm"))), target)]

    def _libraries(self) -> dict[str, str]:
        """A daemon starts servers, which load more than NVML: for a bare directory of the driver, where all that is."""
        root, program = self._site.driver_root, self._site.binary(CONTROL)
        if self._site.own_root or root == Path("/") or program is None:
            return {}
        places = (follow(root, each) for each in LIBRARY_DIRS)
        found = [str(each) for each in places if each.is_dir() and not (each / "libc.so.6").exists()]
        return {"LD_LIBRARY_PATH": ":".join(found), "PATH": f"{program.parent}:{os.environ.get('PATH', os.defpath)}"}

    def _answers(self, daemon: Daemon) -> bool:
        if not self._runs(daemon):
            raise RetriableError(f"the MPS daemon ended at once: {self._said(daemon.id)}")
        return not self.silent(daemon)

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
        if self._site.settings.mps_shm == "private" and not os.path.ismount(place):
            options = f"rw,nosuid,nodev,noexec,relatime,size={_memory_bytes(self._site) // 2}"
            self._site.run(Command(["mount", "-t", "tmpfs", "-o", options, "shm", place]))

    def _unmount_shm(self, daemon_id: str) -> None:
        place = str(self._directory(daemon_id) / "shm")
        if os.path.ismount(place):
            self._site.run(Command(["umount", place]))


def _mounted_in(command: Command, mounts: Sequence[tuple[str, str]]) -> Command:
    """The command, which sees one directory at the place of another; nobody else does."""
    if not mounts:
        return command
    pairs = [word for pair in mounts for word in pair]
    inside = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _PRIVATE, "sh", *pairs, "--"]
    return replace(command, argv=[*inside, *command.argv])


def _memory_bytes(site: Site) -> int:
    for line in read_text(site.host.proc / "meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0]) * 1024
    raise HardwareError(f"{site.host.proc / 'meminfo'}: tells no MemTotal")
