"""The effects of the driver on a node made of files: what the kernel would do is done, and each can be made to fail.

Writing to `bind`, `unbind` and `driver_override` of PCI moves the links that show a function's driver, and makes the
node of an IOMMU group. Tools and daemons really run, but for those that would change this machine: `mount`, `umount`
and `modprobe`. What is to run in a mount namespace of its own (`unshare`) runs without one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from dra_driver_gpu.describe.passthrough import is_vfio
from dra_driver_gpu.effects import Command, CommandError, SystemEffects, WriteError
from dra_sdk.hardware import link_name

_NODE: Final = "DRA_GPU_TEST_NODE"


class NodeEffects(SystemEffects):
    """`Effects` on the node below `root`. `calls` tells what was done, in order."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls: list[str] = []
        self.modules = {"vfio-pci": "vfio-pci"}  # that the kernel can load, and which PCI driver each has
        self.fail_at = 0
        self.after = False

    def fail_call(self, nth: int, *, after: bool = False) -> None:
        """Lets the `nth` write, run or start from now on fail; `after` it took effect if asked."""
        self.fail_at, self.after = len(self.calls) + nth, after

    def running_daemons(self) -> list[int]:
        """The daemons that were started on this node and run."""
        return self.running(f"{_NODE}={self.root}")

    def write(self, path: Path, text: str) -> None:
        """See `Effects.write`."""
        error = WriteError(f"cannot write {text.strip()!r} to {path}: injected")
        if self._enter(f"write {path.relative_to(self.root)}", error):
            self._written(path, text.strip())
            raise error
        self._written(path, text.strip())

    def run(self, command: Command) -> str:
        """See `Effects.run`."""
        error = CommandError(f"{command}: injected")
        fails = self._enter(f"run {_short(command)}", error)
        output = self._changed(command) if _of_machine(command) else super().run(_plain(command))
        if fails:
            raise error
        return output

    def start(self, command: Command, log: Path) -> int:
        """See `Effects.start`."""
        error = CommandError(f"{command}: injected")
        fails = self._enter(f"start {_short(command)}", error)
        pid = super().start(replace(_plain(command), env={**command.env, _NODE: str(self.root)}), log)
        if fails:
            raise error
        return pid

    def _enter(self, call: str, error: Exception) -> bool:
        """Notes a call; whether it is to fail once it took effect. Raises `error` where it fails before."""
        self.calls.append(call)
        fails = len(self.calls) == self.fail_at
        if fails and not self.after:
            raise error
        return fails

    def _changed(self, command: Command) -> str:
        """What a tool would do to this machine, done to the node as far as it can be seen."""
        if command.argv[-2:-1] == ["modprobe"] and command.argv[-1] in self.modules:
            name = self.modules[command.argv[-1]]
            driver = self.root / "sys/bus/pci/drivers" / name
            driver.mkdir(parents=True, exist_ok=True)
            for each in ("bind", "unbind"):
                (driver / each).touch()
            listed = self.root / "sys/module" / command.argv[-1].replace("-", "_") / "drivers" / f"pci:{name}"
            listed.parent.mkdir(parents=True, exist_ok=True)
            listed.symlink_to(driver)
        return ""

    def _written(self, path: Path, text: str) -> None:
        name = path.name
        if name == "driver_override":
            path.write_text(f"{text or '(null)'}\n", encoding="utf-8")
        elif name in {"bind", "unbind"} and path.parent.parent.name == "drivers":
            self._bind(path, text) if name == "bind" else self._unbind(path, text)
        else:
            super().write(path, text)

    def _bind(self, path: Path, address: str) -> None:
        device, driver = self.root / "sys/bus/pci/devices" / address, path.parent.name
        override = (device / "driver_override").read_text(encoding="utf-8").strip()
        if override != driver and (override != "(null)" or is_vfio(driver)):  # which knows no device by itself
            raise WriteError(f"cannot write {address!r} to {path}: No such device")
        if (device / "driver").is_symlink():
            raise WriteError(f"cannot write {address!r} to {path}: Device or resource busy")
        target = os.path.relpath(path.parent, device.resolve())
        (device / "driver").symlink_to(target)
        if is_vfio(driver):
            self._group(device).touch()

    def _unbind(self, path: Path, address: str) -> None:
        device = self.root / "sys/bus/pci/devices" / address
        if not (device / "driver").is_symlink() or (device / "driver").readlink().name != path.parent.name:
            raise WriteError(f"cannot write {address!r} to {path}: No such device")
        (device / "driver").unlink()
        group = self._group(device)
        others = (each for each in device.parent.iterdir() if is_vfio(link_name(each / "driver")))
        if not any(self._group(each) == group for each in others):
            group.unlink(missing_ok=True)

    def _group(self, device: Path) -> Path:
        return self.root / "dev/vfio" / (device / "iommu_group").readlink().name


def _plain(command: Command) -> Command:
    """Without the mount namespace around it."""
    argv = list(command.argv)
    return replace(command, argv=argv[argv.index("--") + 1 :]) if argv[0] == "unshare" else command


def _of_machine(command: Command) -> bool:
    return command.argv[0] in {"mount", "umount"} or "modprobe" in command.argv


def _short(command: Command) -> str:
    argv: Sequence[str] = [Path(command.argv[0]).name, *command.argv[1:]]
    return " ".join([*argv, *([f"< {command.stdin.strip()}"] if command.stdin else [])])
