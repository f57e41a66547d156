"""Device nodes of MIG devices: the capabilities under /proc."""

from __future__ import annotations

import pytest
from dra_driver_gpu.edits.device_nodes import mig_capabilities, monitor_capability
from dra_driver_gpu.nvml.mig import Placement
from dra_driver_gpu.testing.node import GpuNode, mig_minor
from dra_driver_gpu.testing.nvml import fake_gpu

from dra_sdk import DeviceNode, HardwareError


@pytest.fixture
def node(tmp_path):
    return GpuNode(tmp_path, [fake_gpu("A100-40GB", 0, mig=True), fake_gpu("H100-80GB", 1, mig=True)])


def capability(minor):
    return DeviceNode(f"/dev/nvidia-caps/nvidia-cap{minor}", type="c", major=234, minor=minor, file_mode=0o444)


def test_a_mig_device_has_two_capabilities_while_it_exists(node):
    nvml = node.nvml()
    nvml.init()
    instance = nvml.device_by_index(1).create_gpu_instance(9, Placement(4, 4))
    compute = instance.create_compute_instance(2)
    number = instance.info().id
    capabilities = mig_capabilities(node.host, 1, number, compute.info().id)
    assert capabilities == [capability(mig_minor(1, number)), capability(mig_minor(1, number, 0))]
    for device_node in capabilities:
        assert (node.root / device_node.path.lstrip("/")).exists()
    compute.destroy()
    instance.destroy()
    nvml.shutdown()
    with pytest.raises(HardwareError, match="gpu1/mig/gi2/access: cannot be read"):
        mig_capabilities(node.host, 1, number, 0)
    assert not (node.root / capabilities[0].path.lstrip("/")).exists()


def test_minor_numbers_are_those_of_the_kernel(node):
    lines = (node.host.proc / "driver/nvidia-caps/mig-minors").read_text().splitlines()
    minors = {name: int(number) for name, number in (line.split() for line in lines)}
    assert (minors["config"], minors["monitor"]) == (1, 2)
    assert minors["gpu0/gi0/access"] == mig_minor(0, 0) == 3
    assert minors["gpu0/gi0/ci7/access"] == mig_minor(0, 0, 7) == 11
    assert minors["gpu0/gi1/access"] == mig_minor(0, 1) == 12
    assert minors["gpu1/gi0/access"] == mig_minor(1, 0) == 138
    assert len(set(minors.values())) == len(minors) == 2 + 2 * 15 * 9


def test_monitoring_has_a_capability(node):
    assert monitor_capability(node.host) == capability(2)


def test_without_capabilities_the_error_names_the_kernel_module(node):
    (node.host.proc / "devices").write_text("Character devices:\n195 nvidia\n\nBlock devices:\n234 nvidia-caps\n")
    with pytest.raises(
        HardwareError, match=r"proc/devices: no character device nvidia-caps; is the NVIDIA kernel module loaded"
    ):
        monitor_capability(node.host)


@pytest.mark.parametrize("text", ["", "DeviceFileMinor: 3\n", "DeviceFileMinor: x\nDeviceFileMode: 292\n"])
def test_a_malformed_access_file_is_an_error(node, text):
    path = node.host.proc / "driver/nvidia/capabilities/gpu0/mig/gi5/access"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(HardwareError, match=r"gi5/access: must have DeviceFileMinor and DeviceFileMode, is '"):
        mig_capabilities(node.host, 0, 5, 0)
