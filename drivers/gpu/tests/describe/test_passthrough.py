"""GPUs for virtual machines, as sysfs shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dra_driver_gpu.describe.passthrough import read_passthrough

from dra_sdk import HardwareError
from dra_sdk.hardware import Host

GPU = "0000:10:00.0"


def pci(host: Host, address: str) -> Path:
    return host.sys / "bus/pci/devices" / address


def test_virtual_functions_are_not_published(make_gpus: Any) -> None:
    host = Host(make_gpus("L4", "L4").node.root)
    assert [each.index for each in read_passthrough(host)] == [0, 1]
    (pci(host, GPU) / "physfn").symlink_to("../0000:11:00.0")
    assert [(each.index, each.pci.address) for each in read_passthrough(host)] == [(0, "0000:11:00.0")]


def test_a_malformed_file_of_windows_is_an_error(make_gpus: Any) -> None:
    host = Host(make_gpus("L4").node.root)
    (pci(host, GPU) / "resource").write_text("0x0 0xfff\n")
    with pytest.raises(
        HardwareError, match=r"0000:10:00.0/resource: must be three hexadecimal numbers, is '0x0 0xfff'"
    ):
        read_passthrough(host)
