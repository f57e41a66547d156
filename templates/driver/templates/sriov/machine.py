"""A machine made of files: a card with two virtual functions. `python tests/machine.py` writes it to `tree/host`."""

import os
from dataclasses import replace
from pathlib import Path

from dra_sdk.testing import FakeEffects, FakeNode, write_tree
from dra_sdk.testing.sysfs import FakePci, regular_machine

from {{ cookiecutter.__package }} import {{ cookiecutter.__class }}Driver

CARD = FakePci(address="0000:3b:00.0", class_code=0x120000, driver="accel", iommu_group=20, total_vfs=8)
VFS = [
    replace(CARD, address=f"0000:3b:00.{n}", iommu_group=20 + n, total_vfs=0, physical_function=CARD.address)
    for n in (1, 2)
]
LOADED = FakePci(address="0000:00:1f.0", driver="vfio-pci", iommu_group=9)  # so the kernel has VFIO
ROOT = "/sys/devices/pci0000:00"
NAMES = ["vf-0000-3b-00-1", "vf-0000-3b-00-2"]


def plug(node: FakeNode) -> None:
    """Plug in the card."""
    node.machine(replace(regular_machine(), pci=(LOADED, CARD, *VFS)))
    node.device_node("/dev/vfio/vfio", major=10, minor=196)
    for vf in VFS:
        node.file(f"{ROOT}/{vf.address}/power/runtime_status", "active\n")


def unplug(node: FakeNode) -> None:
    """Remove the first virtual function."""
    node.remove(f"/sys/bus/pci/devices/{VFS[0].address}")


def fail(node: FakeNode) -> None:
    """Let the first virtual function fail."""
    node.file(f"{ROOT}/{VFS[0].address}/power/runtime_status", "error\n")


def changed(node: FakeNode) -> str:
    """Return what a claim for the first virtual function changes: its kernel driver."""
    return node.path(f"{ROOT}/{VFS[0].address}/driver").readlink().name


class OnFiles({{ cookiecutter.__class }}Driver):
    """Make it on `tree/host`: files have no kernel that binds functions to drivers, so `FakeEffects` does it."""

    def __init__(self) -> None:
        root = Path(__file__).parents[1] / "tree/host"
        super().__init__(effects=FakeEffects(root, device_node=lambda path, _minor: os.mkfifo(root / path[1:])))


if __name__ == "__main__":
    print(f"wrote {write_tree(plug)}: edit it, and give it to commands as --host-root")
