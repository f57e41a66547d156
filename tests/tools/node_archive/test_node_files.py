"""What a capture reads of a node, what it leaves out, and that the archive stands for the node."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.hardware import Host, read_cpus, read_numa_nodes, read_pci_devices
from dra_sdk.testing.sysfs import FakePci, regular_machine
from dra_sdk.tools.node_archive.archive import MAX_FILE, extract, read_manifest
from dra_sdk.tools.node_archive.node_files import Captured, capture, write_archive

GPU, NIC = "sys/devices/pci0000:00/0000:00:03.0", "sys/devices/pci0000:00/0000:00:04.0"
MAC, UUID = "3c:ec:ef:12:34:56", "9b2a4c1e-1111-4222-8333-abcdefabcdef"


def put(root: Path, path: str, content: str | bytes, mode: int = 0o644) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    file.chmod(mode)
    return file


def link(root: Path, path: str, target: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).symlink_to(target)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A machine with a GPU and a NIC, with what identifies them."""
    root = tmp_path / "node"
    functions = (
        FakePci(address="0000:00:03.0", vendor=0x10DE, device=0x2330, driver="nvidia", iommu_group=7, numa_node=0),
        FakePci(address="0000:00:04.0", driver="mlx5_core", numa_node=1, total_vfs=8),
    )
    replace(regular_machine(sockets=2, cores=2), pci=functions).write(root)
    put(root, f"{GPU}/driver_override", "(null)\n")
    put(root, f"{GPU}/config", bytes(range(256)))
    put(root, f"{GPU}/vpd", "PN: 1\nSN: 1650321\n")
    put(root, f"{GPU}/rom", "rom")
    put(root, f"{GPU}/resource0", "memory")
    put(root, f"{GPU}/secret", "root only", 0o600)
    put(root, f"{GPU}/power/control", "on\n")
    put(root, f"{NIC}/net/eth0/address", f"{MAC}\n")
    put(root, f"{NIC}/net/eth0/uevent", "INTERFACE=eth0\n")
    put(root, f"{NIC}/net/eth0/statistics/rx_bytes", "1")
    put(root, "sys/bus/pci/drivers/nvidia/unbind", "", 0o200)
    link(root, f"{NIC}/net/eth0/device", "../../../0000:00:04.0")
    link(root, f"{NIC}/net/eth0/subsystem", "../../../../../class/net")
    link(root, "sys/class/net/eth0", "../../devices/pci0000:00/0000:00:04.0/net/eth0")
    link(root, "sys/class/net/veth1", "../../devices/virtual/net/veth1")
    put(root, "sys/devices/virtual/net/veth1/address", f"{MAC}\n")
    put(root, "sys/module/nvidia/version", "580.95.05\n")
    put(root, "proc/sys/kernel/random/boot_id", f"{UUID}\n")
    put(root, "proc/driver/nvidia/gpus/0000:00:03.0/information", f"Model: \t NVIDIA H100\nGPU UUID: \t GPU-{UUID}\n")
    put(root, "proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=1 intel_iommu=on isolcpus=2-3 password=secret quiet\n")
    put(root, "proc/modules", "nvidia 1000 0 - Live 0xffffffffc0a00000 (POE)\n")
    put(root, "proc/1/environ", "SECRET=1\0")
    link(root, "proc/self", "1")
    put(root, "etc/shadow", "root:x")
    return root


@pytest.fixture
def captured(node: Path, tmp_path: Path) -> Path:
    """The tree of the extracted archive."""
    write_archive(capture(node), tmp_path / "node.tar.gz")
    extract(tmp_path / "node.tar.gz", tmp_path / "captured")
    return tmp_path / "captured"


def test_the_hardware_of_the_archive_is_that_of_the_node(node: Path, captured: Path) -> None:
    there, here = Host(captured), Host(node)
    assert [replace(device, path=Path()) for device in read_pci_devices(there)] == [
        replace(device, path=Path()) for device in read_pci_devices(here)
    ]
    assert read_cpus(there) == read_cpus(here)
    assert read_numa_nodes(there) == read_numa_nodes(here)
    assert (captured / "sys/class/net/eth0/device/sriov_totalvfs").read_text() == "8\n"
    assert (captured / "sys/module/nvidia/version").read_text() == "580.95.05\n"
    assert (captured / "sys/bus/pci/drivers/nvidia/unbind").read_text() == ""


def everything(root: Path) -> Iterator[str]:
    for folder, _, files in os.walk(root):
        for name in files:
            path = Path(folder) / name
            yield str(path.relative_to(root))
            yield str(path.readlink()) if path.is_symlink() else path.read_bytes().decode(errors="replace")


def test_nothing_in_the_archive_identifies_the_machine(captured: Path) -> None:
    for text in everything(captured):
        for secret in (
            MAC,
            UUID,
            "1650321",
            "root only",
            "SECRET",
            "password",
            "vmlinuz",
            "ffffffffc0a00000",
            "root:x",
        ):
            assert secret not in text
    assert not (captured / f"{GPU}/secret").exists()
    assert (captured / "proc/cmdline").read_text() == "intel_iommu=on isolcpus=2-3\n"
    assert (captured / "proc/modules").read_text() == "nvidia 1000 0 - Live 0x0000000000000000 (POE)\n"
    assert (captured / f"{GPU}/config").read_bytes() == bytes(range(64))
    assert not (captured / "proc/1").exists()
    assert not (captured / "etc").exists()


def test_equal_identifiers_stay_equal(captured: Path) -> None:
    boot_id = (captured / "proc/sys/kernel/random/boot_id").read_text().strip()
    assert f"GPU-{boot_id}\n" in (captured / "proc/driver/nvidia/gpus/0000:00:03.0/information").read_text()


def test_identifiers_are_kept_on_request(node: Path) -> None:
    content = capture(node, with_ids=True)
    assert content.files[f"/{NIC}/net/eth0/address"] == f"{MAC}\n".encode()
    assert content.identifiers == 0
    assert content.manifest().source["withIds"] is True
    assert f"/{GPU}/secret" not in content.files


def test_the_manifest_says_what_was_left_out(captured: Path) -> None:
    left_out = read_manifest(captured).left_out
    assert left_out == {
        f"/{GPU}/resource0": "a device's memory",
        f"/{GPU}/rom": "a device's memory",
        f"/{GPU}/secret": "only root may read it",
        f"/{GPU}/vpd": "vital product data: serial numbers, and slow to read",
        "/sys/class/net/veth1": "is a virtual device",
    }


def test_device_nodes_are_in_the_manifest_and_links_stay_relative(node: Path, tmp_path: Path) -> None:
    (node / "dev").symlink_to("/dev")  # the only device nodes that a test without privileges has
    content = capture(node)
    assert "/dev" in content.links
    (node / "dev").unlink()
    (node / "dev/disk/by-uuid").mkdir(parents=True)
    link(node, "dev/disk/by-uuid/1234", "../../sda")
    link(node, "dev/log", "/run/systemd/journal/dev-log")
    put(node, "dev/notes", "text")
    content = capture(node)
    assert content.links["/dev/log"] == "../run/systemd/journal/dev-log"
    assert content.left_out["/dev/notes"] == "is a file, a socket or a pipe, not a device node"
    assert not any("by-uuid" in path for path in content.links)
    real = capture(Path("/"), read=lambda _path: b"")
    null = Path("/dev/null").stat()
    assert (real.devices["/dev/null"].type, real.devices["/dev/null"].major) == ("c", os.major(null.st_rdev))
    write_archive(real, tmp_path / "real.tar.gz")
    assert extract(tmp_path / "real.tar.gz", tmp_path / "real").devices == real.devices
    assert (tmp_path / "real/dev/null").is_file()


def test_files_that_cannot_be_read_are_listed(node: Path) -> None:
    def read(path: Path) -> bytes:
        if path.name == "vendor":
            raise OSError(5, "Input/output error")
        return {"class": b"\xff\xfe", "device": b"0" * (MAX_FILE + 1)}.get(path.name, b"text")

    content = capture(node, read=read)
    assert content.left_out[f"/{GPU}/vendor"] == "cannot be read: Input/output error"
    assert content.left_out[f"/{GPU}/class"] == "is binary"
    assert content.left_out[f"/{GPU}/device"] == "has more than 4 MiB"
    assert content.complete


def test_a_file_that_does_not_answer_is_left_behind(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging, ended = threading.Event(), threading.Event()
    read = os.read

    def hang(descriptor: int, size: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("0000:00:03.0/vendor"):
            hanging.set()
            ended.wait(60)
        return read(descriptor, size)

    monkeypatch.setattr("dra_sdk.tools.node_archive.node_files.READ_SECONDS", 0.5)
    monkeypatch.setattr("os.read", hang)
    try:
        content = capture(node)
    finally:
        ended.set()
    assert hanging.is_set()
    assert content.left_out[f"/{GPU}/vendor"] == "cannot be read: no answer within 0.5 s"
    assert content.files[f"/{NIC}/vendor"] == b"0x8086\n"


def test_the_size_has_a_limit_and_the_rest_is_told(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_sdk.tools.node_archive.node_files.MAX_CONTENT", 2 << 20)
    content = capture(node, read=lambda _path: b"text" * (1 << 16))
    assert not content.complete
    assert content.size <= 2 << 20
    assert "the files of an archive have at most 2 MiB together" in content.left_out.values()


def test_the_number_of_paths_has_a_limit(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_sdk.tools.node_archive.node_files.MAX_MEMBERS", 50)
    content = capture(node)
    assert not content.complete
    assert len(content.files) + len(content.links) + len(content.directories) < 50
    assert "an archive has at most 50 members" in content.left_out.values()


def test_more_can_be_included_but_no_process_and_nothing_above(node: Path) -> None:
    put(node, "sys/class/fpga/card0/model", "v80\n")
    content = capture(node, include=["/sys/class/fpga/*", "/proc/*", "/etc/sh*"])
    assert content.files["/sys/class/fpga/card0/model"] == b"v80\n"
    assert "/etc/shadow" in content.files
    assert not any(path.startswith(("/proc/1", "/proc/self")) for path in (*content.files, *content.links))
    for pattern in ("sys/class/fpga", "/sys/../etc", "/"):
        with pytest.raises(SettingsError, match="must be an absolute path below /"):
            capture(node, include=[pattern])


def test_the_same_node_gives_the_same_bytes(node: Path, tmp_path: Path) -> None:
    for name in ("one.tar.gz", "two.tar.gz"):
        write_archive(capture(node), tmp_path / name)
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()


def test_an_archive_is_whole_or_absent(node: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file or directory"):
        write_archive(capture(node), tmp_path / "absent/node.tar.gz")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_archive(capture(node), tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "node"]


def test_an_archive_is_not_written_through_a_link(tmp_path: Path) -> None:
    """In a directory such as /tmp anybody can put a link where the file is written first."""
    (tmp_path / "victim").write_text("kept")
    (tmp_path / ".node.tar.gz.partial").symlink_to("victim")
    write_archive(Captured(), tmp_path / "node.tar.gz")
    assert (tmp_path / "victim").read_text() == "kept"
    assert extract(tmp_path / "node.tar.gz", tmp_path / "root") == Captured().manifest()
