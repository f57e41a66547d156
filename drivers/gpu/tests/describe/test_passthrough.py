"""GPUs for virtual machines, as sysfs shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dra_driver_gpu.describe.passthrough import read_passthrough

from dra_sdk.hardware import Host, collecting_omissions

GPU = "0000:10:00.0"


def pci(host: Host, address: str) -> Path:
    return host.sys / "bus/pci/devices" / address


def test_virtual_functions_are_not_published(make_gpus: Any) -> None:
    host = Host(make_gpus("L4", "L4").node.root)
    assert [gpu.index for gpu in read_passthrough(host)] == [0, 1]
    (pci(host, GPU) / "physfn").symlink_to("../0000:11:00.0")
    assert [(gpu.index, gpu.pci.address) for gpu in read_passthrough(host)] == [(0, "0000:11:00.0")]


def test_a_malformed_file_of_windows_hides_no_gpu(make_gpus: Any) -> None:
    host = Host(make_gpus("L4").node.root)
    (pci(host, GPU) / "resource").write_text("0x0 0xfff\n")
    with collecting_omissions() as omissions:
        assert [gpu.addressable_bytes for gpu in read_passthrough(host)] == [0]
    [omission] = omissions
    assert omission.reason.endswith("0000:10:00.0/resource: must be three hexadecimal numbers, is '0x0 0xfff'")


PCI_IDS = """#
10dd  Enhanced Graphics Inc
\t20b0  Not this one
10de  NVIDIA Corporation
\t20b0  GA100 [A100 SXM4 40GB]
\t\t10de 134f  A subsystem
\t27b8  AD104GL [L4]
10df  Emulex Corporation
\t20b0  Nor this one
C 03  Display controller
\t02  3D controller
"""


def vfio(harness: Any) -> Any:
    harness.driver.discover()
    return harness.driver.devices["gpu-vfio-0"].attributes


def test_the_product_is_named_as_the_pci_id_database_names_it(make_gpus: Any) -> None:
    harness = make_gpus("A100-40GB", passthrough=True)
    assert vfio(harness)["productName"] == "NVIDIA A100-SXM4-40GB"
    harness.node.file("/usr/share/hwdata/pci.ids", PCI_IDS)
    assert vfio(harness)["productName"] == "GA100 [A100 SXM4 40GB]"
    harness.node.file("/usr/share/hwdata/pci.ids", PCI_IDS.replace("A100 SXM4 40GB", "A100"))
    assert vfio(harness)["productName"] == "GA100 [A100]"


def test_a_gpu_that_an_operator_bound_has_a_name_by_which_it_can_be_selected(make_gpus: Any) -> None:
    harness = make_gpus("L4", passthrough=True, allow=["*l4*"])
    harness.node.remove(f"/sys/bus/pci/devices/{GPU}/driver")
    harness.node.link(f"/sys/bus/pci/devices/{GPU}/driver", "../../../bus/pci/drivers/vfio-pci")
    harness.memory.lose(harness.memory.gpus[0].uuid)
    harness.driver.discover()
    assert harness.driver.devices == {}
    harness.node.file("/usr/share/misc/pci.ids", PCI_IDS)
    assert vfio(harness)["productName"] == "AD104GL [L4]"


ABSENT = "0x0000000000000000 0x0000000000000000 0x0000000000000000"
REGISTERS = "0x00000000e7000000 0x00000000e7ffffff 0x0000000000040200"  # 16 MiB, 32 bits
MEMORY = "0x0000380000000000 0x0000380fffffffff 0x000000000014220c"  # 64 GiB, 64 bits
SMALL = "0x0000381000000000 0x0000381001ffffff 0x000000000014220c"  # 32 MiB, 64 bits
PORTS = "0x0000000000003000 0x000000000000307f 0x0000000000040101"
ROM = "0x00000000e8000000 0x00000000e807ffff 0x0000000000046200"
OF_VIRTUAL_FUNCTIONS = "0x0000382000000000 0x0000394000000000 0x000000000014220c"


@pytest.mark.parametrize(
    ("bars", "size"),
    [
        ([REGISTERS, MEMORY, ABSENT, SMALL, ABSENT, ABSENT], 128 << 30),
        ([REGISTERS, MEMORY, ABSENT, ABSENT, ABSENT, PORTS], 64 << 30),
        ([REGISTERS, SMALL, ABSENT, SMALL, ABSENT, ABSENT], 64 << 20),
        ([REGISTERS, ABSENT, ABSENT, ABSENT, ABSENT, PORTS], 0),
    ],
)
def test_the_addressable_memory_is_that_of_64_bit_bars(make_gpus: Any, bars: list[str], size: int) -> None:
    """Without the expansion ROM and the BARs of virtual functions, and rounded up to a power of two."""
    host = Host(make_gpus("A100-40GB").node.root)
    (pci(host, GPU) / "resource").write_text("\n".join([*bars, ROM, *[OF_VIRTUAL_FUNCTIONS] * 6]) + "\n")
    assert [gpu.addressable_bytes for gpu in read_passthrough(host)] == [size]


def test_without_the_file_of_windows_no_addressable_memory_is_told(make_gpus: Any) -> None:
    host = Host(make_gpus("A100-40GB").node.root)
    (pci(host, GPU) / "resource").unlink()
    assert [gpu.addressable_bytes for gpu in read_passthrough(host)] == [0]
