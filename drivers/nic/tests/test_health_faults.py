"""One file that cannot be read costs at most the health of its own card."""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection
from pathlib import Path

import pytest
from dra_driver_nic import NicDriver, NicSettings
from dra_driver_nic.describe.devices import SRIOV
from dra_driver_nic.testing.machines import MACHINES

from dra_sdk import Device
from dra_sdk.loader import Driver
from dra_sdk.testing import FakeNode
from dra_sdk.testing.health_faults import check_health

FULL = os.environ.get("DRA_SDK_FULL") == "1"
pytestmark = [pytest.mark.faults] if FULL else []  # every fault takes minutes, and is for `make faults FULL=1`
NEEDED = (
    "random/boot_id",
    "bus/pci/devices",
    "class/net",
    *(f"class/infiniband{kind}" for kind in ("", "_verbs", "_mad")),
)
PLACES = ("pciAddress", "ifName", "rdmaDevice", f"{SRIOV}/pfPciAddress", f"{SRIOV}/PFName")


class Concerns:
    """Whether a file belongs to the function, interface or RDMA device of a device, or to its physical one."""

    def __init__(self, devices: Collection[Device]) -> None:
        self._devices = {device.name: device for device in devices}

    def __call__(self, path: Path, name: str) -> bool:
        attributes = self._devices[name].attributes
        if any(part.startswith(("uverbs", "umad", "issm")) for part in path.parts):
            return "rdmaDevice" in attributes
        return not set(path.parts).isdisjoint(str(attributes[place]) for place in PLACES if place in attributes)


def seed_of(name: str) -> int | None:
    return None if FULL else zlib.crc32(name.encode())


def most(name: str) -> int | None:
    """Return how many faults a machine has: reading hundreds of functions takes long, so it has a drawn share."""
    return (120 if FULL else 12) if name == "hundreds-of-vfs" else None


@pytest.mark.parametrize("name", MACHINES)
def test_a_file_costs_at_most_the_health_of_its_own_card(tmp_path: Path, name: str) -> None:
    node = FakeNode(tmp_path)
    MACHINES[name].write(node)

    def make() -> Driver:
        return Driver.of(NicDriver(NicSettings(settle_seconds=1e-9), effects=node.effects, interval=0))

    concerns = Concerns([device for pool in make().discover(node.node) for device in pool.devices])
    assert check_health(make, node.node, concerns, needed=NEEDED, seed=seed_of(f"health {name}"), most=most(name)) > 10
