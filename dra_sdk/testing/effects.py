"""`NodeEffects` on a node made of files: what a driver does to it is recorded, and can be made to fail or to hang.

    effects = node.effects                                  # of a FakeNode
    effects.fail_call(2, after=True)                        # the second call from now on takes effect, and fails
    effects.hang_write("vfio-pci/bind", "0000:10:00.0")     # the kernel does not return from this write
    effects.release()                                       # until now

Writes change the files as the kernel would: a file whose content ends with a newline always does. What else the kernel
does at a write is a function of the test:

    def react(path, text):
        if (path.parent / "state").read_text() == "up\\n":
            raise OSError(errno.EBUSY, "Device or resource busy")
        path.write_text(text)

    effects.on_write("/sys/bus/pci/devices/*/qat/cfg_services", react)

Writing to `bind`, `unbind` and `driver_override` of PCI moves the link that shows a function's driver, and creates or
removes the device node of an IOMMU group. Programs and daemons really run, except those that would change this machine:
`mount`, `umount` and `modprobe`. They do not enter mount namespaces (`unshare`) or cgroups. A program that is to run in
the node's root (`NodeAccess.run_on_host`) is that of the node, such as a script that a test wrote with `FakeNode.file`;
it runs without `chroot`, because the node has no interpreter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Event
from typing import Final

from dra_sdk.hardware.host import link_target_name
from dra_sdk.hardware.host_paths import file_below, find_program
from dra_sdk.hardware.node_access import (
    Command,
    CommandError,
    PendingWrite,
    SystemEffects,
    WriteError,
    check_not_pending,
)
from dra_sdk.hardware.vfio import is_vfio_driver

Reaction = Callable[[Path, str], object]
"""What the kernel does when a text is written to a file."""
_NODE: Final = "DRA_SDK_TEST_NODE"  # a variable of every daemon: the root of its node


@dataclass(slots=True)
class _HungWrite:
    write: PendingWrite
    released: Event


class FakeEffects(SystemEffects):
    """`NodeEffects` on the node below `root`.

    calls: what was done, in order, as `write PATH`, `run PROGRAM ARGUMENT…` or `start PROGRAM ARGUMENT…`.
    commands: the programs and daemons among them.
    modules: the kernel modules that can be loaded, each with its PCI driver.
    mounts: the directories at which something is mounted.
    hang_seconds: how long a call that hangs takes in a test, instead of its whole timeout.
    """

    def __init__(self, root: Path, *, device_node: Callable[[str, int], object] | None = None) -> None:
        """Let `device_node` make a device node from its path and minor number; by default it is an empty file."""
        self.root = root
        self.calls: list[str] = []
        self.commands: list[Command] = []
        self.modules = {"vfio-pci": "vfio-pci"}
        self.mounts: set[Path] = set()
        self.hang_seconds = 0.1
        self._device_node = device_node
        self._fails_at, self._after, self._hangs_at = 0, False, 0
        self._hanging: tuple[str, str] | None = None
        self._hung: list[_HungWrite] = []
        self._reactions: list[tuple[str, Reaction]] = []

    def fail_call(self, nth: int, *, after: bool = False) -> None:
        """Let the `nth` write, run or start from now on fail; with `after` it takes effect before it fails."""
        self._fails_at, self._after = len(self.calls) + nth, after

    def hang_call(self, nth: int) -> None:
        """Let the `nth` write or run from now on hang: it ends with its timeout, a write returns with `release`."""
        self._hangs_at = len(self.calls) + nth

    def hang_write(self, path: str, text: str) -> None:
        """Let every write of `text` to a file whose path ends with `path` hang, until `release`."""
        self._hanging = (path, text)

    def on_write(self, pattern: str, function: Reaction) -> None:
        """Let `function(path, text)` do what the kernel does when a text is written to a file, in place of writing it.

        pattern: the file's path on the node; `*` stands for any characters. Of several that fit, the last one counts.
        function: gets where the file is and the text as it was written; it writes this file, and others that the
            kernel would change. OSError refuses the write, as WriteError of the caller.
        """
        self._reactions.insert(0, (pattern, function))

    def clear(self) -> None:
        """Let nothing fail or hang from now on; what hangs goes on hanging."""
        self._fails_at, self._hangs_at, self._hanging = 0, 0, None

    def release(self) -> None:
        """Let the kernel return from all writes that hang: they take effect now. Nothing fails or hangs any more."""
        self.clear()
        hung, self._hung = self._hung, []
        for hung_write in hung:
            with suppress(WriteError):  # no process is left to which the kernel could report it
                self._take_effect(hung_write.write.path, hung_write.write.text)
            hung_write.released.set()

    def running_daemons(self) -> list[int]:
        """Return the daemons of this node that run."""
        return self.running(f"{_NODE}={self.root}")

    def write(self, path: Path, text: str, timeout: float | None = None) -> None:
        """See `NodeEffects.write`."""
        if timeout is not None:
            check_not_pending(self, path, text)
        failed = f"cannot write {text.strip()!r} to {path}"
        with self._recorded(f"write {path.relative_to(self.root)}", WriteError(f"{failed}: injected")):
            if not self._hangs(path, text):
                self._take_effect(path, text)
                return
            write = PendingWrite(path, text, os.getpid(), self.started(os.getpid()) or 0)
            hung = _HungWrite(write, Event())
            self._hung.append(hung)
            if not hung.released.wait(None if timeout is None else min(timeout, self.hang_seconds)):
                raise WriteError(f"{failed}: the kernel did not return within {timeout:.0f} s")

    def pending(self) -> list[PendingWrite]:
        """See `NodeEffects.pending`."""
        return [hung.write for hung in self._hung]

    def is_mount(self, path: Path) -> bool:
        """See `NodeEffects.is_mount`."""
        return path in self.mounts

    def run(self, command: Command) -> str:
        """See `NodeEffects.run`."""
        with self._recorded(f"run {_short(command)}", CommandError(f"{command}: injected")):
            self.commands.append(command)
            if len(self.calls) == self._hangs_at:
                Event().wait(min(command.timeout, self.hang_seconds))
                raise CommandError(f"{command}: no answer within {command.timeout:.0f} s")
            return self._changed(command) if _changes_machine(command) else super().run(_plain(command))

    def start(self, command: Command, log: Path) -> int:
        """See `NodeEffects.start`."""
        with self._recorded(f"start {_short(command)}", CommandError(f"{command}: injected")):
            self.commands.append(command)
            marked = {**command.env, _NODE: str(self.root)}
            return super().start(replace(_plain(command), env=marked, cgroups=()), log)

    def bind(self, path: Path, address: str) -> None:
        """Do what the kernel does when an address is written to the file `bind` of a PCI driver."""
        device, driver = self.root / "sys/bus/pci/devices" / address, path.parent.name
        refused = f"cannot write {address!r} to {path}"
        if not device.exists():
            raise WriteError(f"{refused}: No such device")
        override = (device / "driver_override").read_text(encoding="utf-8").strip()
        if override != driver and (override != "(null)" or is_vfio_driver(driver)):  # VFIO needs an override
            raise WriteError(f"{refused}: No such device")
        if (device / "driver").is_symlink():
            raise WriteError(f"{refused}: Device or resource busy")
        if is_vfio_driver(driver):
            if not (device / "iommu_group").is_symlink():
                raise WriteError(f"{refused}: Invalid argument")
            self._make_group_node(self.group_node(device))
        (device / "driver").symlink_to(os.path.relpath(path.parent, device.resolve()))

    def unbind(self, path: Path, address: str) -> None:
        """Do what the kernel does when an address is written to the file `unbind` of a PCI driver."""
        device = self.root / "sys/bus/pci/devices" / address
        if link_target_name(device / "driver") != path.parent.name:
            raise WriteError(f"cannot write {address!r} to {path}: No such device")
        (device / "driver").unlink()
        if not is_vfio_driver(path.parent.name):
            return
        group = self.group_node(device)
        others = (
            function for function in device.parent.iterdir() if is_vfio_driver(link_target_name(function / "driver"))
        )
        if not any(self.group_node(function) == group for function in others):
            group.unlink(missing_ok=True)

    def group_node(self, device: Path) -> Path:
        """Return the device node of a function's IOMMU group."""
        return self.root / "dev/vfio" / (device / "iommu_group").readlink().name

    @contextmanager
    def _recorded(self, call: str, error: Exception) -> Iterator[None]:
        """Record a call, whose effect is the block; raise `error` before or after it if the call must fail."""
        self.calls.append(call)
        fails, after = len(self.calls) == self._fails_at, self._after
        if fails and not after:
            raise error
        yield
        if fails:
            raise error

    def _hangs(self, path: Path, text: str) -> bool:
        if len(self.calls) == self._hangs_at:
            return True
        return self._hanging is not None and str(path).endswith(self._hanging[0]) and text.strip() == self._hanging[1]

    def _changed(self, command: Command) -> str:
        """Do to the node what a program would do to this machine, as far as it can be seen."""
        program, target = Path(command.argv[0]).name, command.argv[-1]
        if program == "mount":
            self.mounts.add(Path(target))
        elif program == "umount":
            self.mounts.discard(Path(target))
        elif target in self.modules:
            self._load(target, self.modules[target])
        return ""

    def _load(self, module: str, driver_name: str) -> None:
        driver = self.root / "sys/bus/pci/drivers" / driver_name
        driver.mkdir(parents=True, exist_ok=True)
        for name in ("bind", "unbind"):
            (driver / name).touch()
        listed = self.root / "sys/module" / module.replace("-", "_") / "drivers" / f"pci:{driver_name}"
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.symlink_to(driver)

    def _take_effect(self, path: Path, text: str) -> None:
        place = f"/{path.relative_to(self.root)}"
        function = next((known for pattern, known in self._reactions if fnmatchcase(place, pattern)), None)
        if function is None:
            self.written(path, text.strip())
            return
        try:
            function(path, text)
        except OSError as error:
            raise WriteError(f"cannot write {text.strip()!r} to {path}: {error.strerror or error}") from error

    def written(self, path: Path, text: str) -> None:
        """Do what the kernel does with a text, without a final newline, for which there is no `on_write`."""
        name = path.name
        if name == "driver_override":
            path.write_text(f"{text or '(null)'}\n", encoding="utf-8")
        elif name in {"bind", "unbind"} and path.parent.parent.name == "drivers":
            self.bind(path, text) if name == "bind" else self.unbind(path, text)
        else:
            super().write(path, f"{text}\n" if _ends_with_newline(path) else text)

    def _make_group_node(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if self._device_node is not None:
            self._device_node(f"/{path.relative_to(self.root)}", int(path.name))
        else:
            path.touch()


def _ends_with_newline(path: Path) -> bool:
    """Return whether a file's content ends with a newline: the kernel adds it to what a driver has written."""
    try:
        return path.read_bytes().endswith(b"\n")
    except OSError:  # the write itself says why
        return False


def _plain(command: Command) -> Command:
    """Return the command without the mount namespace around it, and without a root directory that has no shell."""
    argv = list(command.argv)
    if argv[0] == "unshare":
        argv = argv[argv.index("--") + 1 :]
    if argv[0] == "chroot" and file_below(root := Path(argv[1]), Path("bin/sh")) is None:
        program = file_below(root, Path(argv[2])) if "/" in argv[2] else find_program(root, argv[2])
        if program is None:
            raise CommandError(f"{command}: the node has no program {argv[2]} (FakeNode.file writes a script)")
        argv = [str(program), *argv[3:]]
    return replace(command, argv=argv)


def _changes_machine(command: Command) -> bool:
    return command.argv[0] in {"mount", "umount"} or "modprobe" in command.argv


def _short(command: Command) -> str:
    argv = [Path(command.argv[0]).name, *command.argv[1:]]
    return " ".join([*argv, *([f"< {command.stdin.strip()}"] if command.stdin else [])])
