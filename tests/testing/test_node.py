from __future__ import annotations

from pathlib import Path

import pytest

from dra_sdk import SettingsError
from dra_sdk.hardware import read_cpus
from dra_sdk.testing import FakeNode, write_tree
from dra_sdk.testing.sysfs import regular_machine
from dra_sdk.tools.node_archive.archive import HostDevice
from dra_sdk.tools.simulator.oci import NodeDeviceFiles
from tests.lab.inside.rig import MachineNode


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return FakeNode(tmp_path, "node-a")


def test_a_file_is_written_under_the_root(node):
    written = node.file("/sys/class/x/y", "1\n")
    assert written == node.path("sys/class/x/y") == node.node.root / "sys/class/x/y"
    assert written.read_text() == "1\n"
    assert node.file("/bin", b"\0").read_bytes() == b"\0"
    assert node.node.name == "node-a"


def test_the_tree_is_where_commands_find_it(node, tmp_path):
    node.file("/sys/class/x/y")
    assert (tmp_path / "host/sys/class/x/y").exists()
    assert (node.root, node.kubelet_dir, node.cdi_dir) == tuple(tmp_path / name for name in ("host", "kubelet", "cdi"))


def test_a_node_as_an_archive_and_back(node, tmp_path):
    node.machine(regular_machine())
    node.file("/sys/class/drm/version", "drm 1.1.0")
    node.file("/dev/log")
    node.device_node("/dev/accel0", major=261, minor=7, mode=0o600)
    for name in ("one.tar.gz", "other.tar.gz"):
        node.write_archive(tmp_path / name)
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "other.tar.gz").read_bytes()
    again = FakeNode.from_archive(tmp_path / "one.tar.gz", tmp_path / "again")
    assert again.host_device("/dev/accel0") == node.host_device("/dev/accel0")
    assert read_cpus(again.node) == read_cpus(node.node)
    assert again.path("/sys/class/drm/version").read_text() == "drm 1.1.0"
    assert not again.path("/dev/log").exists()


def test_an_archive_has_further_files_that_are_named(node, tmp_path):
    node.file("/sys/class/lamps/lamp-0/on", "1")
    for name, include in (("without", ()), ("with", ["/sys/class/lamps"])):
        node.write_archive(tmp_path / name, include)
        again = FakeNode.from_archive(tmp_path / name, tmp_path / f"{name}-node")
        assert again.path("/sys/class/lamps/lamp-0/on").exists() is bool(include)


def test_a_tree_has_all_that_commands_need_of_a_node(tmp_path):
    def plug(node):
        node.device_node("/dev/lamp0", major=261, minor=7, mode=0o600)
        node.file("/proc/lamps", "one")

    host = write_tree(plug, tmp_path / "tree")
    assert host == tmp_path / "tree/host"
    assert NodeDeviceFiles(host)("/dev/lamp0") == HostDevice("c", 261, 7, 0o600)
    assert (host / "proc/lamps").read_text() == "one"
    assert (host / "proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_tree_replaces_an_older_one_and_nothing_else(tmp_path):
    directory = tmp_path / "tree"

    def half(node):
        node.file("/half")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write_tree(half, directory)
    write_tree(lambda node: node.file("/whole"), directory)
    assert (directory / "host/whole").exists()
    assert not (directory / "host/half").exists()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter").touch()
    with pytest.raises(SettingsError, match=r"mine exists and is not a tree of an earlier run, with host/dra-sdk-node"):
        write_tree(half, mine)
    assert (mine / "letter").exists()


def test_a_file_that_is_written_through_a_link_stays_a_link(node):
    node.link("/sys/here", "there")
    node.file("/sys/here", "1")
    assert node.path("/sys/here").is_symlink()
    assert node.path("/sys/there").read_text() == "1"


def test_an_absolute_link_of_sysfs_stays_on_the_node(node):
    node.file("/sys/devices/a/vendor", "0x10de")
    node.link("/sys/bus/pci/devices/a", "/sys/devices/a")
    node.link("/sys/class/accel/a", "/sys/bus/pci/devices/a")
    assert node.path("/sys/bus/pci/devices/a").readlink().as_posix() == "../../../devices/a"
    assert node.path("/sys/class/accel/a/vendor").read_text() == "0x10de"
    assert node.link("/dev/disk/here", "/dev/sda").readlink().as_posix() == "/dev/sda"


def test_links_and_directories_can_be_removed(node):
    node.file("/sys/devices/a/vendor", "0x10de")
    node.link("/sys/bus/pci/devices/a", "../../../devices/a")
    assert node.path("/sys/bus/pci/devices/a/vendor").read_text() == "0x10de"
    node.remove("/sys/bus/pci/devices/a")
    node.remove("/sys/devices/a")
    assert not node.path("/sys/devices/a").exists()
    assert not node.path("/sys/bus/pci/devices/a").is_symlink()


def test_device_nodes_have_numbers(node):
    node.device_node("/dev/gpu0", major=195, minor=7)
    node.device_node("/dev/disk", block=True)
    assert (node.host_device("/dev/gpu0").type, node.host_device("/dev/gpu0").minor) == ("c", 7)
    assert node.host_device("/dev/disk").type == "b"
    node.remove("/dev/gpu0")
    with pytest.raises(OSError, match=r"no device node /dev/gpu0 .*it has: /dev/disk"):
        node.host_device("/dev/gpu0")


def test_a_machine_can_be_read(node):
    assert len(read_cpus(node.machine(regular_machine(cores=2))).online) == 4


def test_a_reboot_changes_the_boot_id_and_removes_cdi_specs(node):
    before = node.boot_id
    node.cdi_dir.mkdir()
    node.file("/sys/kept")
    node.reboot()
    assert node.boot_id != before
    assert node.path("/proc/sys/kernel/random/boot_id").read_text() == f"{node.boot_id}\n"
    assert not node.cdi_dir.exists()
    assert node.path("/sys/kept").exists()


def test_the_node_of_the_virtual_machine_has_what_every_node_has(tmp_path):
    names = {name for name in vars(FakeNode(tmp_path / "fake")) if not name.startswith("_")}
    assert names <= set(vars(MachineNode(tmp_path / "machine")))
