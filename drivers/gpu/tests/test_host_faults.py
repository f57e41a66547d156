"""One file that cannot be read, or one call of NVML that fails, costs at most its own GPU."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from dra_driver_amd import AmdGpuDriver
from dra_driver_amd.gpus import read_gpus
from dra_driver_amd.kfd import read_kfd_nodes
from dra_driver_amd.settings import AmdSettings
from dra_driver_amd.testing import RX7900XTX, mi300x, write_gpus
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.testing.harness import GpuHarness

from dra_sdk import Device, ResourcePool
from dra_sdk.hardware import collecting_omissions, read_pci_devices
from dra_sdk.loader import Driver
from dra_sdk.testing import FakeNode
from dra_sdk.testing.host_faults import check_each_file
from dra_sdk.testing.sysfs import regular_machine

FULL = os.environ.get("DRA_SDK_FULL") == "1"
pytestmark = [pytest.mark.faults] if FULL else []  # every fault takes minutes, and is for `make faults FULL=1`
NEEDED = (
    "bus/pci/devices",
    "devices/system/cpu/online",
    "devices/system/node",
    "topology/nodes",
    "random/boot_id",
)
OF_THE_LIBRARY = frozenset({"nvmlInitWithFlags", "nvmlShutdown", "nvmlDeviceGetCount_v2"})
"""Without these calls it is not known which GPUs there are."""
CODES = [code for code in ReturnCode if code.name not in {"SUCCESS", "UNINITIALIZED", "DRIVER_NOT_LOADED"}]
NOT_OFFERED = frozenset(
    {ReturnCode.NOT_SUPPORTED, ReturnCode.INVALID_ARGUMENT, ReturnCode.FUNCTION_NOT_FOUND, ReturnCode.NOT_FOUND}
)
"""The return codes by which a GPU or a driver says that it has no answer."""


def seed_of(name: str) -> int | None:
    return None if FULL else zlib.crc32(name.encode())


@pytest.mark.parametrize("passthrough", [True, False])
def test_a_file_costs_at_most_its_own_amd_gpu(tmp_path: Path, passthrough: bool) -> None:
    node = FakeNode(tmp_path)
    gpus = (mi300x("dpx"), RX7900XTX, mi300x(driver="vfio-pci"), mi300x(driver="gim", vfs=2))
    write_gpus(node.root, gpus, machine=regular_machine(sockets=2, cores=1, threads=1))
    settings = AmdSettings(state_dir="/s", passthrough=passthrough)
    driver = Driver.of(AmdGpuDriver(settings, effects=node.effects))
    cards = {f"renderD{gpu.render}": gpu.pci.address for gpu in read_gpus(node.node)}
    cards |= {f"nodes/{kfd.number}": kfd.address for kfd in read_kfd_nodes(node.node)}
    cards |= {pci.address: pci.physical_function or pci.address for pci in read_pci_devices(node.node)}

    def concerns(path: Path, device: Device) -> bool:
        """A file of a function, DRM device or KFD node is about its card; another one about all."""
        places = {*path.parts, *(f"nodes/{part}" for part in path.parts if part.isdecimal())}
        owners = {cards[place] for place in places & cards.keys()}
        return not owners or cards[str(device.attributes["pciAddr"])] in owners

    discover = partial(driver.discover, node.node)
    assert check_each_file(discover, concerns, needed=NEEDED, seed=seed_of(f"amd {passthrough}")) > 30


@pytest.mark.parametrize("passthrough", [True, False])
def test_a_file_costs_at_most_its_own_nvidia_gpu(make_gpus: Callable[..., GpuHarness], passthrough: bool) -> None:
    harness = make_gpus("A100-40GB", "L4", passthrough=passthrough, list_attributes=True, dynamic_mig=True)
    driver = Driver.of(harness.make())
    addresses = [gpu.pci_address for gpu in harness.memory.gpus]

    def concerns(path: Path, device: Device) -> bool:
        """A file of a function is about that GPU; another one about all."""
        owners = set(addresses) & set(path.parts)
        return not owners or device.hardware.pci_address in owners

    discover = partial(driver.discover, harness.node.node)
    assert check_each_file(discover, concerns, needed=NEEDED, seed=seed_of(f"nvidia {passthrough}")) > 10


def test_a_call_of_nvml_costs_at_most_its_own_gpu(make_gpus: Callable[..., GpuHarness]) -> None:
    harness = make_gpus("A100-40GB", "A100-80GB", "L4", dynamic_mig=True)
    discover = partial(Driver.of(harness.make()).discover, harness.node.node)
    faults, [first, *_] = harness.memory.faults, harness.memory.gpus
    before = devices_of(discover())
    calls = sorted(set(faults.calls) - OF_THE_LIBRARY)
    assert len(calls) > 10
    chance = random.Random(20)
    for call in calls:
        for code in CODES if FULL else chance.sample(CODES, 2):
            faults.clear()
            faults.fail(call, code, times=10**6, gpu=first.uuid)
            with collecting_omissions() as omissions:
                after = devices_of(discover())
            text = " ".join(map(str, omissions))
            is_named = first.uuid in text or "index 0" in text or code in NOT_OFFERED
            for name, (gpu, shown) in before.items():
                if gpu != first.uuid:
                    assert after[name] == (gpu, shown), f"{call} {code.name} changes {name}"
                elif after.get(name) != (gpu, shown):
                    assert is_named, f"{call} {code.name} changes {name}, and nothing says why: {text}"


def devices_of(pools: list[ResourcePool]) -> dict[str, tuple[str, str]]:
    """Return each device with its GPU and all that is published of it."""
    devices = (device for pool in pools for device in pool.devices)
    return {device.name: (device.hardware.uuid, repr(replace(device, hardware=None))) for device in devices}
