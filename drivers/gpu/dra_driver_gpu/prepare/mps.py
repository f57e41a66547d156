"""MPS daemons: `nvidia-cuda-mps-control` for the devices of a claim to which one entry of configuration applies.

A daemon has the directories `pipe`, `log` and `shm` below `<state>/mps/<id>/`; `dra_sdk.hardware.daemons` has the rest
of its life. Its clients find it by `pipe`, and share `shm` with it as their `/dev/shm`.
Source: the MPS documentation, "nvidia-cuda-mps-control".
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dra_driver_gpu.gpu_record import JSON, MPS_STEP
from dra_driver_gpu.nvidia_node import NvidiaNode
from dra_sdk import ContainerEdits, HardwareError, Mount
from dra_sdk.hardware import exists, is_directory, read_text
from dra_sdk.hardware.daemons import DaemonKind, Daemons, DaemonSpec
from dra_sdk.hardware.host_paths import LIBRARY_DIRS, follow
from dra_sdk.hardware.mounts import mount, unmount, with_mounts
from dra_sdk.hardware.node_access import Command, CommandError

_CONTROL: Final = "nvidia-cuda-mps-control"
_MARKER: Final = "DRA_GPU_MPS_DAEMON"
ANSWER_SECONDS: Final = 5.0  # for a daemon to answer one command
_CLIENT_PIPE: Final = "/tmp/nvidia-mps"  # noqa: S108 (the default of clients)
_DEV_SHM: Final = "/dev/shm"  # noqa: S108 (the mount point of every container)
_SHM_OPTIONS: Final = ("rw", "nosuid", "nodev", "noexec", "relatime")
_WRITABLE: Final = ("rw", "nosuid", "nodev", "rbind", "rprivate")
_MOUNT_POINT: Final = "/mnt"
"""Where the programs of a driver container see a daemon's directory, in their own mount namespace."""


@dataclass(frozen=True, slots=True)
class MpsDaemon(DaemonSpec):
    """What an MPS daemon is for.

    percentage: the share of multiprocessors that a client may use, in percent; None for no limit.
    limits: the device memory that a client may use, by UUID, such as `953M` (MiB).
    multi_user: processes of several users may be clients.
    """

    percentage: int | None = None
    limits: Mapping[str, str] = field(default_factory=dict)
    multi_user: bool = False

    @property
    def id(self) -> str:
        """The claim's part and the devices' part: short, because the path of a socket has at most 107 bytes."""
        return f"{claim_id(self.claim)}-{_digest(','.join(sorted(self.devices)))[:5]}"

    @property
    def commands(self) -> Iterator[str]:
        """The commands that set its limits, in the words of its control program."""
        if self.percentage is not None:
            yield f"set_default_active_thread_percentage {self.percentage}"
        for index, uuid in enumerate(sorted(self.devices)):
            if (
                uuid in self.limits
            ):  # as NVIDIA documents, by the index among the daemon's devices; by UUID has no effect
                yield f"set_default_device_pinned_mem_limit {index} {self.limits[uuid]}"

    @property
    def journal_entry(self) -> JSON:
        """What a claim's journal gets before the daemon is started."""
        return {"step": MPS_STEP, "id": self.id}


def claim_id(uid: str) -> str:
    """Return what the ids of all daemons of the claim with this UID begin with."""
    return _digest(uid)[:10]


def mps_daemons(node: NvidiaNode) -> Daemons[MpsDaemon]:
    """Return the MPS daemons of a node."""
    program = _MpsProgram(node)
    kind = DaemonKind(
        name="MPS daemon",
        spec=MpsDaemon,
        marker=_MARKER,
        directories=("pipe", "log", "shm"),
        logs=("control.log",),
        start_seconds=node.settings.mps_seconds,
        command=program.start_command,
        before_start=program.mount_shm,
        probe=lambda daemon_id: program.send(daemon_id, "get_server_list"),
        configure=program.configure,
        quit=program.quit,
        after_end=program.unmount_shm,
    )
    return Daemons(node, program.base, kind)


def client_edits(node: NvidiaNode, daemon_id: str) -> ContainerEdits:
    """Return what makes a container's processes clients of a daemon."""
    base = f"{_MpsProgram(node).base}/{daemon_id}"
    shm = _DEV_SHM if node.settings.mps_shm == "host" else f"{base}/shm"
    mounts = [Mount(f"{base}/pipe", _CLIENT_PIPE, _WRITABLE), Mount(shm, _DEV_SHM, _WRITABLE)]
    return ContainerEdits(env={"CUDA_MPS_PIPE_DIRECTORY": _CLIENT_PIPE}, mounts=mounts)


class _MpsProgram:
    """The control program on a node: with `-f` a daemon, else it sends one command to the daemon of a directory."""

    def __init__(self, node: NvidiaNode) -> None:
        self._node = node
        self.base = f"{node.settings.state_dir}/mps"

    def start_command(self, daemon: MpsDaemon) -> Command:
        """Return the command of a daemon in the foreground, with its own `/dev/shm` if that is private."""
        own = {"CUDA_VISIBLE_DEVICES": ",".join(sorted(daemon.devices)), _MARKER: daemon.id}
        options = ["-f", *(["-M"] if daemon.multi_user else [])]
        environment = {**self._server_environment(), **self._directories(daemon.id), **own}
        command = self._node.driver_command(_CONTROL, *options, env=environment)
        return with_mounts(command, [*self._moved_directory(daemon.id), *self._private_shm(daemon.id)])

    def send(self, daemon_id: str, command: str) -> None:
        """Send one command to a daemon. Raises CommandError, HardwareError."""
        program = self._node.driver_command(_CONTROL, stdin=f"{command}\n", env=self._directories(daemon_id))
        self._node.run(replace(with_mounts(program, self._moved_directory(daemon_id)), timeout=ANSWER_SECONDS))

    def configure(self, daemon: MpsDaemon) -> None:
        """Set the limits of a daemon's clients."""
        for command in daemon.commands:
            self.send(daemon.id, command)

    def quit(self, daemon_id: str) -> None:
        """Ask a daemon to end. If it does not answer, signals end it later."""
        with suppress(CommandError, HardwareError):
            self.send(daemon_id, "quit")

    def mount_shm(self, daemon_id: str) -> None:
        """Mount a tmpfs of half the node's memory, like the kernel's `/dev/shm`; it takes memory only when used."""
        if self._node.settings.mps_shm == "private":
            options = [*_SHM_OPTIONS, f"size={_memory_bytes(self._node) // 2}"]
            mount(self._node, self._shm(daemon_id), source="shm", kind="tmpfs", options=options)

    def unmount_shm(self, daemon_id: str) -> None:
        """Undo `mount_shm`."""
        unmount(self._node, self._shm(daemon_id))

    def _shm(self, daemon_id: str) -> str:
        return f"{self.base}/{daemon_id}/shm"

    @property
    def _moved(self) -> bool:
        """Whether the driver's programs run in the root of a driver container, which lacks the state directory."""
        return self._node.own_root and self._node.settings.driver_root != "/"

    def _directories(self, daemon_id: str) -> dict[str, str]:
        """Return where the driver's programs see the directories of a daemon."""
        path = f"{self.base}/{daemon_id}"
        seen = _MOUNT_POINT if self._moved else path if self._node.own_root else str(self._node.local(path))
        return {"CUDA_MPS_PIPE_DIRECTORY": f"{seen}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{seen}/log"}

    def _moved_directory(self, daemon_id: str) -> list[tuple[str, str]]:
        """Return the mount that shows a daemon's directory to programs in a driver container."""
        target = str(self._node.driver_root / _MOUNT_POINT.lstrip("/"))
        return [(str(self._node.local(f"{self.base}/{daemon_id}")), target)] if self._moved else []

    def _private_shm(self, daemon_id: str) -> list[tuple[str, str]]:
        """Return the mount of a daemon's `/dev/shm`."""
        if self._node.settings.mps_shm == "host" and not self._moved:
            return []
        target = str(self._node.driver_root / _DEV_SHM.lstrip("/")) if self._node.own_root else _DEV_SHM
        shm = _DEV_SHM if self._node.settings.mps_shm == "host" else self._shm(daemon_id)
        source = str(self._node.local(shm))
        return [(source, target)]

    def _server_environment(self) -> dict[str, str]:
        """Return where a daemon finds its server, and a server its libraries, if the driver is in a bare directory."""
        root, program = self._node.driver_root, self._node.program(_CONTROL)
        if self._node.own_root or root == Path("/") or program is None:
            return {}
        directories = (follow(root, directory) for directory in LIBRARY_DIRS)
        paths = [str(path) for path in directories if is_directory(path) and not exists(path / "libc.so.6")]
        return {"LD_LIBRARY_PATH": ":".join(paths), "PATH": f"{program.parent}:{os.environ.get('PATH', os.defpath)}"}


def _memory_bytes(node: NvidiaNode) -> int:
    path = node.host.proc / "meminfo"
    for line in read_text(path).splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0]) * 1024
    raise HardwareError(f"{path}: has no MemTotal")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
