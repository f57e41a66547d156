"""Identifiers get made-up replacements, the same for the same identifier, and nothing else changes."""

from __future__ import annotations

import pytest

from dra_sdk.tools.node_archive.identifiers import Identifiers

UUID = "9b2a4c1e-1111-4222-8333-abcdefabcdef"


@pytest.mark.parametrize(
    "text",
    [
        "3c:ec:ef:12:34:56",
        UUID,
        UUID.upper(),
        UUID.replace("-", ""),
        "ec0d:9a03:0012:3456",
        "fe80:0000:0000:0000:ec0d:9a03:0012:3456",
        "80:00:02:08:fe:80:00:00:00:00:00:00:ec:0d:9a:03:00:12:34:56",
        "enx3cecef123456",
        "GPU UUID: \t GPU-9b2a4c1e-1111-4222-8333-abcdefabcdef",
    ],
)
def test_an_identifier_is_replaced_by_one_of_the_same_shape(text: str) -> None:
    replaced = Identifiers().replaced(text, "/sys/class/any/file")
    assert replaced != text
    assert len(replaced) == len(text)
    assert [sign for sign in replaced if sign in ":-"] == [sign for sign in text if sign in ":-"]
    assert not {"123456", "abcdef", "ABCDEF"} & {replaced[at : at + 6] for at in range(len(replaced))}


@pytest.mark.parametrize(
    "text",
    [
        "0000:3b:00.0",
        "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00",
        "00:00:00:00:00:00",
        "ff:ff:ff:ff:ff:ff",
        "00000000,ffffffff,ffffffff",
        "MemTotal:       16384 kB",
        "0000:0000:0000:0000:0000:0000:0000:0000",
        "fe80:0000:0000:0000:0000:0000:0000:0000",
        "DRIVER=serial\nMODALIAS=of:Nserial",
        "serial\n1",
        "crw 188:3",
        "srcversion 533BB7E5866E52F63B9ACCB",
    ],
)
def test_what_identifies_nothing_stays(text: str) -> None:
    known = Identifiers()
    known.learn("/sys/class/any/file", text)
    assert known.replaced(text, "/sys/class/any/file") == text
    assert known.count == 0


def test_equal_identifiers_have_equal_replacements() -> None:
    known = Identifiers()
    words = known.replaced(f"3c:ec:ef:12:34:56 {UUID} 3C:EC:EF:12:34:56 3c:ec:ef:12:34:57").split()
    assert words[0] == words[2] != words[3]
    assert known.replaced(UUID.upper()) == words[1]
    assert known.replaced("enx3cecef123456") == f"enx{words[0].replace(':', '')}"


def test_a_serial_number_is_replaced_wherever_it_occurs() -> None:
    known = Identifiers()
    known.learn("/sys/devices/pci0000:00/nvme/nvme0/serial", "S5GXNX0R\n")
    assert known.replaced("S5GXNX0R\n", "/sys/devices/pci0000:00/nvme/nvme0/serial") == "made-up-1\n"
    assert known.replaced("nvme-Samsung-S5GXNX0R") == "nvme-Samsung-made-up-1"
    assert known.replaced("nvme-Samsung-S5GXNX0R7") == "nvme-Samsung-S5GXNX0R7"


def test_a_short_serial_number_is_replaced_in_its_own_file_only() -> None:
    known = Identifiers()
    known.learn("/sys/bus/usb/devices/1-1/serial", "42\n")
    assert known.replaced("42\n", "/sys/bus/usb/devices/1-1/serial") == "made-up-1\n"
    assert known.replaced("42\n", "/sys/bus/usb/devices/1-1/bMaxPower") == "42\n"


def test_a_number_is_the_same_in_hexadecimal_and_in_decimal() -> None:
    known = Identifiers()
    file, properties = "/sys/devices/pci0000:00/0000:03:00.0/unique_id", "simd_count 304\nunique_id 12345678901234567\n"
    known.learn(file, "002bdc545d6b4b87\n")
    known.learn("/sys/class/kfd/kfd/topology/nodes/1/properties", properties)
    made_up = int(known.replaced("002bdc545d6b4b87\n", file), 16)
    assert made_up != 12345678901234567
    assert known.replaced(properties, "/properties") == f"simd_count 304\nunique_id {made_up}\n"
    assert known.count == 1


def test_the_serial_number_of_a_board_in_cpuinfo_is_replaced() -> None:
    known = Identifiers()
    text = "model name\t: Cortex-A72\nSerial\t\t: 10000000a1b2c3d4\nModel\t\t: Board\n"
    known.learn("/proc/cpuinfo", text)
    assert "10000000a1b2c3d4" not in known.replaced(text, "/proc/cpuinfo")
    assert known.replaced(text, "/proc/cpuinfo").startswith("model name\t: Cortex-A72\nSerial\t\t: ")
