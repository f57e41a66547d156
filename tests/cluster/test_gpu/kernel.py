"""The driver on an imitated kernel that binds PCI functions to drivers: the target of `dra-sdk run`.

Sysfs is a tree of files. When a function gets `vfio-pci`, the device node of its IOMMU group appears, as a real
character device, in the tree and on this machine, where the container runtime looks for it. NVML, which is then opened
again, does not know the GPU any more. Both are undone when `nvidia` gets the function back.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from dra_driver_gpu.driver import GpuDriver
from dra_driver_gpu.testing.nvml_stub import STATE_VARIABLE

from dra_sdk.hardware.vfio import VFIO_PCI
from dra_sdk.testing import FakeEffects
from tests.cluster.test_gpu.tree import L4, make_node

GROUPS: Final = Path("/dev/vfio")
MAJOR: Final = 511
_INDEX: Final = "1"  # of the only GPU that is passed through here; the last one, because NVML's indices have no gaps


class PassthroughDriver(GpuDriver):
    """The GPU driver on this kernel."""

    def __init__(self) -> None:
        super().__init__(effects=_Kernel(Path(os.environ["DRA_SDK_HOST_ROOT"])))


class _Kernel(FakeEffects):
    def bind(self, path: Path, address: str) -> None:
        super().bind(path, address)
        assert address == L4.pci_address
        if path.parent.name != VFIO_PCI:
            _give_to_nvml()
            return
        group = self.group_node(self.root / "sys/bus/pci/devices" / address)
        group.unlink()
        for place in (group, GROUPS / group.name):
            make_node(place, MAJOR, int(group.name))
        _take_from_nvml()

    def unbind(self, path: Path, address: str) -> None:
        super().unbind(path, address)
        group = self.group_node(self.root / "sys/bus/pci/devices" / address)
        if not group.exists():
            (GROUPS / group.name).unlink(missing_ok=True)


def _take_from_nvml() -> None:
    state, away = _files()
    lines = state.read_text().splitlines(keepends=True)
    mine = [
        line for line in lines if line.split()[0] not in {"driver", "cuda", "privileged"} and line.split()[1] == _INDEX
    ]
    away.write_text("".join(mine))
    state.write_text("".join(line for line in lines if line not in mine))


def _give_to_nvml() -> None:
    state, away = _files()
    state.write_text(state.read_text() + away.read_text())
    away.unlink()


def _files() -> tuple[Path, Path]:
    """Returns the file of what NVML knows, and the file of what was taken from it."""
    state = Path(os.environ[STATE_VARIABLE])
    return state, state.with_suffix(".away")
