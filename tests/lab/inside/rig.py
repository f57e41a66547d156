"""The GPU driver on this machine, with its real `/sys`, `/proc` and `/dev`, and the SDK's real engine.

Only NVML is in memory. It knows the GPUs by the addresses of the functions that stand for them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from dra_driver_gpu.driver import GpuDriver
from dra_driver_gpu.settings import GpuSettings
from dra_driver_gpu.testing.nvml import MemoryNvml, fake_gpu

from dra_sdk.hardware.node_access import Command, SystemEffects
from dra_sdk.node.files import Files
from dra_sdk.testing import DriverHarness, FakeNode
from dra_sdk.testing.effects import FakeEffects
from dra_sdk.testing.harness import QuickFiles
from dra_sdk.tools.simulator.oci import HostDevice
from tests.lab.inside.functions import Function

CLASS = "vfio.gpu.nvidia.com"
LONGEST: Final = 600.0
"""Seconds for one write or program, in place of the driver's limit: the machine is emulated, and may run on a busy one,
where the start of a child process alone takes longer than a driver waits for a kernel."""
_TYPE = 'device.attributes["gpu.nvidia.com"].type == "vfio"'


class MachineNode(FakeNode):
    """This machine, with other directories for the kubelet and the container runtime.

    effects: records nothing, because the driver writes to the kernel itself.
    """

    def __init__(self, directory: Path) -> None:
        self.name, self.labels = "lab", {}
        self.root = Path("/")
        self.kubelet_dir, self.cdi_dir = directory / "kubelet", directory / "cdi"
        self.boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self.effects = FakeEffects(self.root)

    def host_device(self, path: str) -> HostDevice:
        """Returns a device node as a container runtime finds it; OSError if there is none."""
        found = os.stat(path)
        kind = "b" if stat.S_ISBLK(found.st_mode) else "c"
        return HostDevice(kind, os.major(found.st_rdev), os.minor(found.st_rdev), stat.S_IMODE(found.st_mode))


class Kernel(SystemEffects):
    """The real kernel.

    before: is called before each write, and may act as another process does at that moment, or raise.
    files: gets a step before each write and one after each `bind`, so that a test can kill the process there.
    writes: how often the driver wrote to the kernel.
    """

    def __init__(self, directory: Path) -> None:
        self._marker = directory / "step"
        self.before: Callable[[Path, str], None] = lambda _path, _text: None
        self.files: Files = QuickFiles()
        self.writes = 0

    def write(self, path: Path, text: str, timeout: float | None = None) -> None:
        """See `NodeEffects.write`."""
        self._step()
        self.writes += 1
        self.before(path, text)
        super().write(path, text, None if timeout is None else LONGEST)
        if path.name == "bind":
            self._step()

    def run(self, command: Command) -> str:
        """See `NodeEffects.run`."""
        return super().run(replace(command, timeout=LONGEST))

    def _step(self) -> None:
        """Takes one step of `files`: it calls back before it removes a file."""
        self._marker.touch()
        self.files.remove(self._marker, survive_power_loss=False)


class Rig(DriverHarness):
    """The driver on this machine, with these functions as its GPUs.

    kernel: what the driver writes to.
    """

    def __init__(self, directory: Path, gpus: Sequence[Function], *, seconds: float = 1.0) -> None:
        cards = [replace(fake_gpu("L4", minor), pci_address=each.address) for minor, each in enumerate(gpus)]
        self.kernel = Kernel(directory)
        nvml = MemoryNvml(cards, driver_version="580.95.05")
        settings = GpuSettings(passthrough=True, vfio_seconds=seconds, state_dir=str(directory / "state"))
        make = lambda: GpuDriver(settings, nvml=lambda _root: nvml, effects=self.kernel)  # noqa: E731
        super().__init__(make, MachineNode(directory))
        self.add_class(CLASS, _TYPE)

    def restart(self, files: Files | None = None) -> None:
        """See `DriverHarness.restart`. Only writes to the kernel are steps: other tests cover those on disk."""
        self.kernel.files = files or QuickFiles()
        super().restart()
