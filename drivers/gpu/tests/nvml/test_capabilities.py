"""MIG capabilities under /proc."""

from __future__ import annotations

import pytest
from dra_driver_gpu.nvml.capabilities import (
    Capability,
    device_major,
    mig_capabilities,
    mig_capability,
    mig_minors,
    monitor_capability,
)
from dra_driver_gpu.nvml.memory import fake_gpu
from dra_driver_gpu.nvml.values import Placement
from dra_driver_gpu.testing import GpuNode

from dra_sdk.errors import HardwareError


@pytest.fixture
def node(tmp_path):
    return GpuNode(tmp_path, [fake_gpu("A100-40GB", 0, mig=True), fake_gpu("H100-80GB", 1, mig=True)])


def test_a_new_mig_device_has_two_capabilities(node):
    nvml = node.nvml()
    nvml.init()
    instance = nvml.device_by_index(1).create_gpu_instance(9, Placement(4, 4))
    compute = instance.create_compute_instance(2)
    number = instance.info().id
    found = mig_capabilities(node.host, 1, number, compute.info().id)
    minors = mig_minors(node.host)
    assert [one.minor for one in found] == [minors[f"gpu1/gi{number}/access"], minors[f"gpu1/gi{number}/ci0/access"]]
    assert found[0] == Capability(f"/dev/nvidia-caps/nvidia-cap{found[0].minor}", 234, found[0].minor, 0o444)
    for one in found:
        assert (node.root / one.path.lstrip("/")).exists()
    compute.destroy()
    instance.destroy()
    with pytest.raises(HardwareError, match="gpu1/mig/gi2/access: cannot be read"):
        mig_capability(node.host, 1, number)
    assert not (node.root / found[0].path.lstrip("/")).exists()


def test_minor_numbers_are_those_of_the_kernel(node):
    minors = mig_minors(node.host)
    assert minors["config"] == 1
    assert minors["monitor"] == 2
    assert minors["gpu0/gi0/access"] == 3
    assert minors["gpu0/gi0/ci7/access"] == 11
    assert minors["gpu0/gi1/access"] == 12
    assert minors["gpu1/gi0/access"] == 138
    assert len(set(minors.values())) == len(minors) == 2 + 2 * 15 * 9


def test_monitoring_has_a_capability(node):
    assert monitor_capability(node.host) == Capability("/dev/nvidia-caps/nvidia-cap2", 234, 2, 0o444)


def test_a_driver_without_major_number_is_told(node):
    assert device_major(node.host, "nvidia-uvm") == 510
    with pytest.raises(
        HardwareError, match=r"proc/devices: no character device sd; is the NVIDIA kernel module loaded"
    ):
        device_major(node.host, "sd")  # a block device


@pytest.mark.parametrize("text", ["", "DeviceFileMinor: 3\n", "DeviceFileMinor: x\nDeviceFileMode: 292\n"])
def test_an_access_file_that_makes_no_sense_is_told(node, text):
    path = node.host.proc / "driver/nvidia/capabilities/gpu0/mig/gi5/access"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(HardwareError, match=r"gi5/access: expected DeviceFileMinor and DeviceFileMode, found '"):
        mig_capability(node.host, 0, 5)


def test_a_table_of_minors_that_makes_no_sense_is_told(node):
    (node.host.proc / "driver/nvidia-caps/mig-minors").write_text("config one\n")
    with pytest.raises(HardwareError, match=r"mig-minors: expected a capability and a number, found 'config one'"):
        mig_minors(node.host)
