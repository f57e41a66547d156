"""Nodes with GPUs that are made of files, as readers see them."""

from __future__ import annotations

import os

import pytest
from dra_driver_gpu.edits.device_nodes import mig_capabilities
from dra_driver_gpu.nvml.real import find_library
from dra_driver_gpu.testing.node import GpuNode
from dra_driver_gpu.testing.nvml import fake_gpu

from dra_sdk.hardware import read_pci_devices
from dra_sdk.testing.sysfs import FakePci, regular_machine


def test_pci_functions_are_those_of_the_gpus(tmp_path):
    gpus = [fake_gpu("A100-40GB", 0), fake_gpu("L4", 1)]
    nic = FakePci(address="0000:0f:00.0", class_code=0x020000, root="pci0000:0f", driver="mlx5_core", numa_node=0)
    machine = regular_machine(sockets=2)
    node = GpuNode(tmp_path, gpus, machine=type(machine)(**{**vars(machine), "pci": (nic,)}))
    functions = {function.address: function for function in read_pci_devices(node.host)}
    assert set(functions) == {"0000:0f:00.0", "0000:10:00.0", "0000:11:00.0"}
    gpu = functions["0000:11:00.0"]
    assert (gpu.vendor, gpu.device, gpu.class_code) == (0x10DE, 0x27B8, 0x030200)
    assert (gpu.driver, gpu.root, gpu.numa_node, gpu.iommu_group) == ("nvidia", "pci0000:10", 1, 21)


def test_the_bars_hold_the_memory(tmp_path):
    node = GpuNode(tmp_path, [fake_gpu("A100-40GB")])
    lines = (node.host.sys / "bus/pci/devices/0000:10:00.0/resource").read_text().splitlines()
    sizes = [int(end, 16) - int(start, 16) + 1 if int(flags, 16) else 0 for start, end, flags in map(str.split, lines)]
    assert sizes[:6] == [16 << 20, 64 << 30, 0, 32 << 20, 0, 0]
    assert sizes[6] == 512 << 10  # the expansion ROM
    assert sizes[7:] == [5 << 20, 1280 << 30, 0, 640 << 20, 0, 0]  # of 20 virtual functions


@pytest.mark.parametrize("driver_root", ["/", "/run/nvidia/driver"])
def test_libraries_and_tools_are_under_the_driver_root(tmp_path, driver_root):
    node = GpuNode(tmp_path, [fake_gpu("L4")], driver_root=driver_root)
    assert find_library(node.driver_root).endswith("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05")
    assert find_library(node.driver_root).startswith(str(tmp_path / driver_root.strip("/")))
    for name in ("nvidia-smi", "nvidia-cuda-mps-control", "nvidia-cdi-hook"):
        assert os.access(node.driver_root / "usr/bin" / name, os.X_OK)


def test_device_nodes_are_there(tmp_path):
    node = GpuNode(tmp_path, [fake_gpu("L4", 0), fake_gpu("L4", 5)])
    names = {str(path.relative_to(node.host.dev)) for path in node.host.dev.rglob("*") if path.is_file()}
    assert names >= {"nvidia0", "nvidia5", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "dri/card1", "dri/renderD129"}


def test_all_instances_can_exist_at_once(tmp_path):
    node = GpuNode(tmp_path, [fake_gpu("A30", 0), fake_gpu("L4", 1)])
    node.set_all_instances()
    assert mig_capabilities(node.host, 0, 14, 7)[1].minor == 3 + 15 * 9 - 1
    assert not (node.host.proc / "driver/nvidia/capabilities/gpu1").exists()


def test_a_reset_removes_the_capabilities(tmp_path):
    node = GpuNode(tmp_path, [fake_gpu("A30", mig=True)])
    nvml = node.nvml()
    nvml.init()
    nvml.device_by_index(0).create_gpu_instance(5)
    assert list((node.host.proc / "driver/nvidia/capabilities/gpu0").rglob("access"))
    nvml.reset(nvml.gpus[0].uuid)
    assert not list((node.host.proc / "driver/nvidia/capabilities/gpu0").rglob("access"))
