"""A node made of files: what a driver reads under `Node.root`, and the directories that the SDK writes to.

    node = FakeNode(tmp_path)
    node.machine(regular_machine(sockets=2))
    node.device_node("/dev/ttyUSB3", major=188, minor=3)

Paths are those on the node, such as /sys/class/net; the files lie under `root`. Nothing needs privileges: a device
node is an ordinary file, whose numbers are remembered for the container's view.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

from dra_sdk.hardware import Host
from dra_sdk.model.driver import Node
from dra_sdk.testing.sysfs import FakeMachine
from dra_sdk.tools.simulator.oci import HostDevice

_BOOT_IDS = itertools.count(1)


class FakeNode:
    """One node below `directory`. `labels` are those of its Node object."""

    def __init__(self, directory: Path, name: str = "node-1") -> None:
        self.name = name
        self.labels = {"kubernetes.io/hostname": name}
        self.root = directory / "host"
        self.kubelet_dir = directory / "kubelet"
        self.cdi_dir = directory / "cdi"
        self.boot_id = ""
        self._devices: dict[str, HostDevice] = {}
        self.root.mkdir(parents=True, exist_ok=True)
        self._boot()

    @property
    def node(self) -> Node:
        """The node as hooks get it."""
        return Node(self.name, self.root)

    def path(self, path: str) -> Path:
        """Where a path of the node lies here."""
        return self.root / path.lstrip("/")

    def file(self, path: str, content: str | bytes = "") -> Path:
        """Writes a file, and the directories above it; where it lies."""
        written = self.path(path)
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_bytes(content.encode() if isinstance(content, str) else content)
        return written

    def link(self, path: str, target: str) -> Path:
        """Makes a symbolic link, as sysfs is full of them; a relative `target` is the usual one there."""
        made = self.path(path)
        made.parent.mkdir(parents=True, exist_ok=True)
        made.symlink_to(target)
        return made

    def remove(self, path: str) -> None:
        """Takes away a file, link or directory, as when hardware is unplugged."""
        gone = self.path(path)
        if gone.is_dir() and not gone.is_symlink():
            shutil.rmtree(gone)
        else:
            gone.unlink()
        self._devices.pop(path, None)

    def device_node(
        self, path: str, *, major: int = 240, minor: int = 0, block: bool = False, mode: int = 0o660
    ) -> Path:
        """A device node, by default of a character device of a major number for local use."""
        self._devices[path] = HostDevice("b" if block else "c", major, minor, mode)
        return self.file(path)

    def machine(self, machine: FakeMachine) -> Host:
        """Writes the `/sys` and `/proc` of a machine (`dra_sdk.testing.sysfs`)."""
        return machine.write(self.root)

    def reboot(self) -> None:
        """A new boot id, and what lies on tmpfs is gone: CDI specs and sockets. Files of `root` stay as they are."""
        shutil.rmtree(self.cdi_dir, ignore_errors=True)
        self._boot()

    def host_device(self, path: str) -> HostDevice:
        """The device node at a path of the node; OSError where there is none, as a container runtime gets it."""
        if path not in self._devices or not self.path(path).exists():
            known = ", ".join(sorted(self._devices)) or "none"
            raise OSError(f"the node has no device node {path} (FakeNode.device_node makes one; there are: {known})")
        return self._devices[path]

    def _boot(self) -> None:
        self.boot_id = f"00000000-0000-4000-8000-{next(_BOOT_IDS):012d}"
        self.file("/proc/sys/kernel/random/boot_id", f"{self.boot_id}\n")
