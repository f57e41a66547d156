"""One file that cannot be read costs at most its own card: each file that discovery reads, each fault."""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from dra_driver_nic import NicDriver, NicSettings
from dra_driver_nic.describe.devices import SRIOV
from dra_driver_nic.testing import write_interface, write_rdma_device
from dra_driver_nic.testing.machines import MACHINES

from dra_sdk import Device
from dra_sdk.hardware import collecting_omissions
from dra_sdk.loader import Driver
from dra_sdk.testing import FakeNode
from dra_sdk.testing.host_faults import HostFault, check_each_file, injected
from dra_sdk.testing.sysfs import FakePci, regular_machine

FULL = os.environ.get("DRA_SDK_FULL") == "1"
pytestmark = [pytest.mark.faults] if FULL else []  # every fault takes minutes, and is for `make faults FULL=1`
NEEDED = (
    "random/boot_id",
    "bus/pci/devices",
    "class/net",
    *(f"class/infiniband{kind}" for kind in ("", "_verbs", "_mad")),
)
UNSET = ("speed", "carrier", "phys_port_name", "address", "operstate", "ifalias", "uevent")
PLACES = ("pciAddress", "ifName", "rdmaDevice", f"{SRIOV}/pfPciAddress", f"{SRIOV}/PFName")
MACHINE_NAMES = [name for name in MACHINES if name != "hundreds-of-vfs"]


def concerns(path: Path, device: Device) -> bool:
    """Return whether a file belongs to the function, interface or RDMA device of a device, or to its physical one."""
    places: Collection[str] = [str(device.attributes[name]) for name in PLACES if name in device.attributes]
    if any(part.startswith(("uverbs", "umad", "issm")) for part in path.parts):
        return "rdmaDevice" in device.attributes
    return not set(path.parts).isdisjoint(places)


@pytest.mark.parametrize("name", MACHINE_NAMES)
def test_a_file_costs_at_most_its_own_card(tmp_path: Path, name: str) -> None:
    node = FakeNode(tmp_path)
    MACHINES[name].write(node)
    seed = None if FULL else zlib.crc32(name.encode())
    for mode in ("individual", "partitionable") if FULL else ("individual",):
        driver = Driver.of(NicDriver(NicSettings(device_mode=mode), effects=node.effects))
        tried = check_each_file(partial(driver.discover, node.node), concerns, needed=NEEDED, unset=UNSET, seed=seed)
        assert tried > 10


@pytest.mark.parametrize(
    "file",
    ["ports/1/rate", "ports/1/lid", "ports/1/pkeys/0", "ports/1/pkeys/1", "fw_ver", "node_guid", "ports/1/phys_state"],
)
@pytest.mark.parametrize("kind", ["EINVAL", "empty"])
def test_a_port_without_a_cable_hides_no_card(tmp_path: Path, file: str, kind: str) -> None:
    """The kernel answers EINVAL for the rate of a port without a cable, and publishes both cards all the same."""
    node = FakeNode(tmp_path)
    cards = [FakePci(address=f"0000:0{n}:00.0", vendor=0x15B3, device=0x1017, driver="mlx5_core") for n in (7, 8)]
    node.machine(replace(regular_machine(), pci=tuple(cards)))
    for number, card in enumerate(cards):
        write_interface(node, f"ens{number}", 2 + number, f"pci0000:00/{card.address}")
        write_rdma_device(node, f"mlx5_{number}", f"pci0000:00/{card.address}", number, interfaces=[f"ens{number}"])
    driver = Driver.of(NicDriver(NicSettings(), effects=node.effects))
    path = node.path(f"/sys/class/infiniband/mlx5_0/{file}")
    with injected(HostFault(path, kind)), collecting_omissions() as omissions:
        [pool] = driver.discover(node.node)
    assert {device.name: device.attributes["rdmaDevice"] for device in pool.devices} == {
        "pci-0000-07-00-0": "mlx5_0",
        "pci-0000-08-00-0": "mlx5_1",
    }
    assert [omission.subject for omission in omissions] == [str(path)] or file in {"fw_ver", "node_guid"}
