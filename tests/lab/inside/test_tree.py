"""The same writes to the real kernel and to the tree of files that the driver's other tests use in its place."""

from __future__ import annotations

import os
from pathlib import Path
from subprocess import run

from dra_sdk.hardware import link_target_name
from dra_sdk.hardware.node_access import NodeEffects, SystemEffects, WriteError
from dra_sdk.testing import FakeEffects

OWN, VFIO = "e1000e", "vfio-pci"
STEPS = (
    (0, f"drivers/{OWN}/bind"),  # it has this driver already
    (0, f"drivers/{VFIO}/unbind"),  # it has another driver
    (0, f"drivers/{OWN}/unbind"),
    (0, f"drivers/{OWN}/unbind"),
    (0, f"drivers/{VFIO}/bind"),  # no override allows it
    (0, "nouveau"),
    (0, f"drivers/{VFIO}/bind"),
    (0, VFIO),
    (0, f"drivers/{OWN}/bind"),
    (0, f"drivers/{VFIO}/bind"),
    (0, f"drivers/{VFIO}/bind"),
    (0, f"drivers/{OWN}/bind"),
    (0, ""),
    (1, VFIO),
    (1, f"drivers/{OWN}/unbind"),
    (1, f"drivers/{VFIO}/bind"),
    (0, f"drivers/{VFIO}/unbind"),  # the group has another function with VFIO
    (1, f"drivers/{VFIO}/unbind"),
    (1, OWN),
    (1, f"drivers/{OWN}/bind"),
    (1, ""),
    (0, f"drivers/{OWN}/bind"),
)
"""The number of the function, and the driver's file to which its address is written or its new `driver_override`."""


def play(effects: NodeEffects, root: Path, addresses: list[str]) -> list[tuple[object, ...]]:
    """Takes the steps. Returns for each the answer, driver and override of both functions, and whether the group has
    a device node."""
    devices = [root / "sys/bus/pci/devices" / each for each in addresses]
    node = root / "dev/vfio" / str(link_target_name(devices[0] / "iommu_group"))
    found = []
    for number, what in STEPS:
        answer = "done"
        try:
            if what.startswith("drivers/"):
                effects.write(root / "sys/bus/pci" / what, addresses[number])
            else:
                effects.write(devices[number] / "driver_override", f"{what}\n")
        except WriteError as error:
            answer = str(error).rpartition(": ")[2]
        drivers = [link_target_name(each / "driver") for each in devices]
        overrides = [(each / "driver_override").read_text() for each in devices]
        found.append((number, what, answer, drivers, overrides, node.exists()))
    return found


def tree(root: Path, addresses: list[str]) -> Path:
    """Makes the two functions as files."""
    for driver in (OWN, VFIO):
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True)
        for file in ("bind", "unbind"):
            (root / "sys/bus/pci/drivers" / driver / file).touch()
    (root / "dev/vfio").mkdir(parents=True)
    for address in addresses:
        device = root / "sys/bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "driver_override").write_text("(null)\n")
        (device / "iommu_group").symlink_to("/sys/kernel/iommu_groups/7")
        (device / "driver").symlink_to(os.path.relpath(root / "sys/bus/pci/drivers" / OWN, device))
    return root


def test_the_tree_of_files_does_what_the_kernel_does(tmp_path, nics):
    run(["modprobe", VFIO], check=True)
    addresses = [each.address for each in nics[OWN]]
    real = play(SystemEffects(), Path("/"), addresses)
    imitated = play(FakeEffects(tmp_path), tree(tmp_path, addresses), addresses)
    assert imitated == real
    assert {answer for _, _, answer, *_ in real} == {"done", "No such device", "Device or resource busy"}
