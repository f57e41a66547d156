"""A node with an NVIDIA driver: its programs, and where they run."""

from __future__ import annotations

import pytest

from dra_sdk import HardwareError


def test_programs_of_a_root_file_system_run_in_it(make_gpus):
    harness = make_gpus("L4", driver_root="/run/nvidia/driver")
    root = f"{harness.node.root}/run/nvidia/driver"
    bare = harness.nvidia_node.driver_command("nvidia-smi", "-L")
    assert bare.argv == [f"{root}/usr/bin/nvidia-smi", "-L"]
    harness.node.link("/run/nvidia/driver/bin", "/usr/bin")
    harness.node.file("/run/nvidia/driver/usr/bin/sh")
    assert harness.nvidia_node.driver_command("nvidia-smi", "-L").argv == ["chroot", root, "/usr/bin/nvidia-smi", "-L"]


def test_a_program_that_is_not_installed(make_gpus):
    with pytest.raises(HardwareError, match=r"nvidia-fan is not under driver root .* \(searched opt/bin, usr/bin, "):
        make_gpus("L4").nvidia_node.driver_command("nvidia-fan")
