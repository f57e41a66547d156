"""A node made of files: the hardware that a driver reads, and the directories that the SDK writes to.

    node = FakeNode(tmp_path)
    node.machine(regular_machine(sockets=2))
    node.device_node("/dev/ttyUSB3", major=188, minor=3)

Paths are those on the node, such as /sys/class/net; the files are under `root`, which is `host` in the directory that
`FakeNode` is given: /sys/class/net is `tmp_path/host/sys/class/net`. Nothing needs privileges: a device node is an
ordinary file, and its numbers are kept for the container's view. What a driver does to the node goes through `effects`,
which records it.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from dra_sdk.errors import SettingsError
from dra_sdk.hardware import Host
from dra_sdk.hardware.node_access import NodeAccess
from dra_sdk.hardware.polling import Clock
from dra_sdk.model.driver import Node
from dra_sdk.testing.effects import FakeEffects
from dra_sdk.testing.sysfs import FakeMachine
from dra_sdk.tools.node_archive.archive import MANIFEST, ArchiveManifest, HostDevice, extract
from dra_sdk.tools.node_archive.node_files import capture, write_archive

_BOOT_IDS = itertools.count(1)
_INTERVAL: Final = 0.02
_VFIO_MAJOR: Final = 511


class FakeNode:
    """One node below `directory`.

    name: the name of its Node object.
    labels: the labels of its Node object.
    root: `directory/host`, the root of the node's file system. Write to it with the methods below, or give it to
        commands: `dra-sdk discover NAME --host-root tmp_path/host`.
    kubelet_dir: `directory/kubelet`, where the SDK keeps its state.
    cdi_dir: `directory/cdi`, where the SDK writes CDI specs.
    boot_id: the boot ID, which `reboot` changes.
    effects: what is done to the node.
    """

    def __init__(self, directory: Path, name: str = "node-1") -> None:
        self.name = name
        self.labels = {"kubernetes.io/hostname": name}
        self.root = directory / "host"
        self.kubelet_dir = directory / "kubelet"
        self.cdi_dir = directory / "cdi"
        self.boot_id = ""
        self._devices: dict[str, HostDevice] = {}
        self._unfinished = directory / "unfinished"
        self.root.mkdir(parents=True, exist_ok=True)
        self.effects = FakeEffects(self.root, device_node=self._vfio_group)
        self._boot()

    @classmethod
    def from_archive(cls, archive: Path, directory: Path, name: str = "node-1") -> FakeNode:
        """Return a node with the files of an archive that `dra-sdk capture` wrote. SettingsError if it is refused."""
        node = cls(directory, name)
        captured = extract(archive, node.root)
        node._devices |= captured.devices
        node._boot()
        return node

    def write_archive(self, path: Path, include: Iterable[str] = ()) -> None:
        """Write the files and device nodes that `dra-sdk capture --with-ids` takes, with `include`, of this node.

        The same node gives the same archive, so it can be a fixture in the driver's package (`fixtures/NAME.tar.gz`).
        The boot ID is one of the files.
        """
        captured = capture(self.root, include=include, with_ids=True)
        left_out = {name: reason for name, reason in captured.left_out.items() if name not in self._devices}
        write_archive(replace(captured, devices=dict(self._devices), left_out=left_out, source={}), path)

    @property
    def node(self) -> Node:
        """The node as hooks get it."""
        return Node(self.name, self.root)

    @property
    def access(self) -> NodeAccess:
        """The node for blocks that act on it (`dra_sdk.hardware.node_access`), with short intervals between checks."""
        return NodeAccess(self.root, self.effects, Clock(interval=_INTERVAL))

    def path(self, path: str) -> Path:
        """Return where the file of a path is."""
        return self.root / path.lstrip("/")

    def file(self, path: str, content: str | bytes = "") -> Path:
        """Write a file, with its parent directories; where the file is.

        A reader sees the old content or the new one, never a part, so a test may write while the driver watches.
        """
        written = self.path(path)
        written.parent.mkdir(parents=True, exist_ok=True)
        self._unfinished.write_bytes(content.encode() if isinstance(content, str) else content)
        self._unfinished.replace(written.resolve())
        return written

    def link(self, path: str, target: str) -> Path:
        """Make a symbolic link, with its parent directories.

        Links in sysfs are relative, and so they stay on the node: an absolute `target` of one is that path of the node.
        """
        linked = self.path(path)
        linked.parent.mkdir(parents=True, exist_ok=True)
        in_sysfs = path.startswith("/sys/") and target.startswith("/")
        inside = self.root.resolve() / target.lstrip("/")
        linked.symlink_to(os.path.relpath(inside, linked.parent.resolve()) if in_sysfs else target)
        return linked

    def remove(self, path: str) -> None:
        """Remove a file, link or directory, as when hardware is unplugged."""
        removed = self.path(path)
        if removed.is_dir() and not removed.is_symlink():
            shutil.rmtree(removed)
        else:
            removed.unlink()
        self._devices.pop(path, None)

    def device_node(
        self, path: str, *, major: int = 240, minor: int = 0, block: bool = False, mode: int = 0o660
    ) -> Path:
        """Make a device node, by default of a character device with a major number for local use."""
        self._devices[path] = HostDevice("b" if block else "c", major, minor, mode)
        return self.file(path)

    def machine(self, machine: FakeMachine) -> Host:
        """Write the `/sys` and `/proc` of a machine (`dra_sdk.testing.sysfs`)."""
        return machine.write(self.root)

    def reboot(self) -> None:
        """Change the boot ID and remove the CDI specs, which are on tmpfs. Files under `root` stay as they are."""
        shutil.rmtree(self.cdi_dir, ignore_errors=True)
        self._boot()

    def host_device(self, path: str) -> HostDevice:
        """Return the device node at a path; OSError if there is none, as for a container runtime."""
        if path not in self._devices or not self.path(path).exists():
            known = ", ".join(sorted(self._devices)) or "none"
            raise OSError(f"the node has no device node {path} (FakeNode.device_node makes one; it has: {known})")
        return self._devices[path]

    def write_manifest(self) -> None:
        """Write the device nodes into `root`, so that commands with `--host-root` find them."""
        self.file(f"/{MANIFEST}", ArchiveManifest(devices=self._devices).encoded())

    def _vfio_group(self, path: str, minor: int) -> None:
        self.device_node(path, major=_VFIO_MAJOR, minor=minor)

    def _boot(self) -> None:
        self.boot_id = f"00000000-0000-4000-8000-{next(_BOOT_IDS):012d}"
        self.file("/proc/sys/kernel/random/boot_id", f"{self.boot_id}\n")


def write_tree(plug: Callable[[FakeNode], object], directory: Path = Path("tree")) -> Path:
    """Write a machine to `directory/host`, which is returned: a root for commands, with boot ID and device nodes.

    `plug` writes the machine's files to the node that it is given. An older tree at this place is replaced;
    SettingsError if something else is there.
    """
    if directory.exists() and not (directory / "host" / MANIFEST).is_file():
        raise SettingsError(f"{directory} exists and is not a tree of an earlier run, with host/{MANIFEST}: remove it")
    shutil.rmtree(directory, ignore_errors=True)
    node = FakeNode(directory)
    node.write_manifest()  # at first, so that a tree that was not finished is replaced as well
    plug(node)
    node.write_manifest()
    return node.root
