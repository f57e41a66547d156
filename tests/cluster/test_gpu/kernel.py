"""The driver on an imitated kernel that binds PCI functions to drivers: the target of `dra-sdk run`.

Sysfs is a tree of files. When a function gets `vfio-pci`, the device node of its IOMMU group appears, as a real
character device, in the tree and on this machine, where the container runtime looks for it. NVML, which is then opened
again, does not know the GPU any more. Both are undone when `nvidia` gets the function back.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

from dra_driver_gpu.driver import GpuDriver
from dra_driver_gpu.settings import GpuSettings
from dra_driver_gpu.testing.memory_answers import MemoryAnswers
from dra_driver_gpu.testing.nvml import MemoryNvml
from dra_driver_gpu.testing.nvml.state import GpuState
from dra_driver_gpu.testing.nvml_stub import SOCKET_VARIABLE, Answer

from dra_sdk.hardware.vfio import VFIO_PCI
from dra_sdk.testing import FakeEffects
from tests.cluster.test_gpu.tree import L4, make_node

GROUPS: Final = Path("/dev/vfio")
MAJOR: Final = 511
_TAKE: Final = "take"
_GIVE: Final = "give"


class PassthroughDriver(GpuDriver):
    """The GPU driver on this kernel."""

    def __init__(self, settings: GpuSettings) -> None:
        super().__init__(settings, effects=_Kernel(Path(os.environ["DRA_SDK_HOST_ROOT"])))


class _Kernel(FakeEffects):
    def bind(self, path: Path, address: str) -> None:
        super().bind(path, address)
        assert address == L4.pci_address
        if path.parent.name != VFIO_PCI:
            _tell_nvml(_GIVE)
            return
        group = self.group_node(self.root / "sys/bus/pci/devices" / address)
        group.unlink()
        for place in (group, GROUPS / group.name):
            make_node(place, MAJOR, int(group.name))
        _tell_nvml(_TAKE)

    def unbind(self, path: Path, address: str) -> None:
        super().unbind(path, address)
        group = self.group_node(self.root / "sys/bus/pci/devices" / address)
        if not group.exists():
            (GROUPS / group.name).unlink(missing_ok=True)


class KernelAnswers(MemoryAnswers):
    """The GPUs in memory, which this kernel takes and gives back: calls of its own beside those of NVML."""

    def __init__(self, nvml: MemoryNvml) -> None:
        super().__init__(nvml)
        self._away: GpuState | None = None

    def __call__(self, function: str, text: str, numbers: tuple[int, ...]) -> Answer:
        if function == _TAKE:
            self._away = self.nvml.unbind(text)
        elif function == _GIVE:
            assert self._away is not None
            self.nvml.bind(self._away)
        else:
            return super().__call__(function, text, numbers)
        return Answer()


def _tell_nvml(call: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ[SOCKET_VARIABLE])
        server.sendall(f"{call}\t{L4.uuid}\t\n".encode())
        assert server.recv(100).startswith(b"0\t")
