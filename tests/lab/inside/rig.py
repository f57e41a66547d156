"""The GPU driver on this machine as it is: its own `/sys`, `/proc` and `/dev`, and the SDK's real engine.

Only NVML is in memory: it knows the GPUs by the addresses of the functions that stand for them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from dra_driver_gpu.blocks.node_access import SystemEffects
from dra_driver_gpu.driver import GpuDriver
from dra_driver_gpu.nvml.memory import MemoryNvml, fake_gpu
from dra_driver_gpu.settings import GpuSettings

from dra_sdk.node.files import Files
from dra_sdk.testing import DriverHarness, FakeNode
from dra_sdk.testing.harness import QuickFiles
from dra_sdk.tools.simulator.oci import HostDevice
from tests.lab.inside.functions import Function

CLASS = "vfio.gpu.nvidia.com"
_TYPE = 'device.attributes["gpu.nvidia.com"].type == "vfio"'


class MachineNode(FakeNode):
    """This machine; only the kubelet's and the runtime's directories are elsewhere."""

    def __init__(self, directory: Path) -> None:
        self.name, self.labels = "lab", {}
        self.root = Path("/")
        self.kubelet_dir, self.cdi_dir = directory / "kubelet", directory / "cdi"
        self.boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def host_device(self, path: str) -> HostDevice:
        """A device node as a container runtime finds it; OSError where there is none."""
        found = os.stat(path)
        kind = "b" if stat.S_ISBLK(found.st_mode) else "c"
        return HostDevice(kind, os.major(found.st_rdev), os.minor(found.st_rdev), stat.S_IMODE(found.st_mode))


class Kernel(SystemEffects):
    """The real kernel. `before` is called before each write to it, and may do what others do meanwhile, or raise.

    Each write is a step for whoever kills the process at its steps, and what follows a `bind` another one.
    """

    def __init__(self) -> None:
        self.before: Callable[[Path, str], None] = lambda _path, _text: None
        self.files: Files = QuickFiles()
        self.writes = 0

    def write(self, path: Path, text: str) -> None:
        """See `Effects.write`."""
        self.files._step("write", str(path))
        self.writes += 1
        self.before(path, text)
        super().write(path, text)
        if path.name == "bind":
            self.files._step("written", str(path))


class Rig(DriverHarness):
    """The driver with these functions as its GPUs."""

    def __init__(self, directory: Path, gpus: Sequence[Function], *, seconds: float = 1.0) -> None:
        cards = [replace(fake_gpu("L4", minor), pci_address=each.address) for minor, each in enumerate(gpus)]
        self.kernel = Kernel()
        nvml = MemoryNvml(cards, driver_version="580.95.05")
        settings = GpuSettings(passthrough=True, vfio_seconds=seconds, state_dir=str(directory / "state"))
        make = lambda: GpuDriver(settings, nvml=lambda _root: nvml, effects=self.kernel)  # noqa: E731
        super().__init__(make, MachineNode(directory))
        self.add_class(CLASS, _TYPE)

    def start(self, files: Files | None = None) -> None:
        """See `DriverHarness.start`. The only steps are writes to the kernel: a test has the others on any disk."""
        self.kernel.files = files or QuickFiles()
        super().start()
