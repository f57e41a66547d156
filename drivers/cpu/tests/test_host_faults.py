"""One file that cannot be read costs at most its own CPU, or its own memory: each file of each machine, each fault."""

from __future__ import annotations

import os
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dra_driver_cpu import CpuDriver, CpuSettings
from dra_driver_cpu.memory import MemoryDriver, MemorySettings

from dra_sdk import Device, Node
from dra_sdk.hardware.numa import read_numa_cpus
from dra_sdk.loader import Driver
from dra_sdk.testing.host_faults import check_each_file
from dra_sdk.testing.machines import MACHINES
from dra_sdk.testing.sysfs import FakeMachine, hybrid_machine, regular_machine

FULL = os.environ.get("DRA_SDK_FULL") == "1"
pytestmark = [pytest.mark.faults] if FULL else []  # every fault takes minutes, and is for `make faults FULL=1`
NEEDED = ("devices/system/cpu/online", "devices/system/node", "devices", "bus/pci/devices", "/proc")
CPU = re.compile(r"/cpu(\d+)/")
NUMA_NODE = re.compile(r"/node(\d+)/")
SMALL = {
    "two-sockets": regular_machine(sockets=2, numa_nodes=2, cores=2, l3_caches=2),
    "hybrid": hybrid_machine(p_cores=1, e_cores=2, e_cluster=2),
    "arm": replace(regular_machine(cores=3, threads=1), l3_ids=False, smt_control="notimplemented"),
}
EVERY = {**SMALL, **(MACHINES if FULL else {})}
"""Small ones have every fault for every file with FULL=1, large ones a drawn one: they have thousands of files."""


def numbers(path: Path, pattern: re.Pattern[str]) -> set[int]:
    return {int(number) for number in pattern.findall(f"{path}/")}


@pytest.mark.parametrize("mode", ["grouped", "individual", "partitionable"])
@pytest.mark.parametrize("machine", EVERY.values(), ids=EVERY)
def test_a_file_of_a_cpu_costs_at_most_that_cpu(tmp_path: Path, machine: FakeMachine, mode: Any) -> None:
    node = Node("node-1", machine.write(tmp_path).root)
    driver = Driver.of(CpuDriver(CpuSettings(device_mode=mode, expose_pcie_roots=True)))
    cpus_of = read_numa_cpus(node)

    def concerns(path: Path, device: Device) -> bool:
        """Of a file of a CPU or a node: the devices with its CPUs. Of another one: what describes all CPUs alike."""
        mine = numbers(path, CPU)
        mine = mine or {cpu for number in numbers(path, NUMA_NODE) for cpu in cpus_of.get(number, ())}
        return not mine or not mine.isdisjoint(device.hardware)

    seed = None if FULL and machine in SMALL.values() else zlib.crc32(f"{machine}{mode}".encode())
    assert check_each_file(lambda: driver.discover(node), concerns, needed=NEEDED, seed=seed) > 20


@pytest.mark.parametrize("numa", [True, False])
def test_a_file_of_memory_costs_at_most_that_memory(tmp_path: Path, numa: bool) -> None:
    machine = regular_machine(sockets=2, cores=1, threads=1)
    node = Node("node-1", replace(machine, numa=numa, hugepages={2 << 20: 64, 1 << 30: 1}).write(tmp_path).root)
    driver = Driver.of(MemoryDriver(MemorySettings()))

    def concerns(path: Path, device: Device) -> bool:
        """Ordinary memory is what huge pages leave, so their number is about both."""
        number = numbers(path, NUMA_NODE) or ({0} if "hugepages" in str(path) or path.name == "meminfo" else set())
        return device.hardware.numa_node in number

    needed = (*NEEDED, "devices/system/node/node*")
    assert check_each_file(lambda: driver.discover(node), concerns, needed=needed, seed=None) > 50
