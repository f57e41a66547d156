from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk import HardwareError, Node
from dra_sdk.hardware import Host, read_cpus, read_pci_devices
from dra_sdk.hardware.host import (
    SMALL,
    device_file,
    entries,
    link_target,
    link_target_name,
    numbered_paths,
    read_cpuset,
    read_hex,
    read_if_exists,
    read_int,
    read_key_values,
    read_large_text,
    read_optional,
    read_text,
    real_path,
    target_if_link,
)
from dra_sdk.model.omissions import Omission, collecting_omissions
from dra_sdk.testing.host_faults import FAULTS, HostFault, injected
from dra_sdk.testing.sysfs import regular_machine


def test_the_default_root_is_the_machine_itself():
    assert (Host().sys, Host().proc, Host().dev) == (Path("/sys"), Path("/proc"), Path("/dev"))


def test_all_file_systems_are_below_the_root(tmp_path):
    host = Host(tmp_path)
    assert {path.parent for path in (host.sys, host.proc, host.dev)} == {tmp_path}


def test_a_node_is_a_host_with_a_name_and_readers_take_it(tmp_path):
    node = Node("node-1", regular_machine(cores=2, threads=1).write(tmp_path).root)
    assert (node.name, node.root, node.sys) == ("node-1", tmp_path, tmp_path / "sys")
    assert read_cpus(node) == read_cpus(Host(tmp_path))
    assert read_pci_devices(node) == ()
    assert node == replace(Node("other", tmp_path), name="node-1")
    assert Node("node-1").root == Path("/")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "value"


def test_white_space_around_text_is_removed(file):
    file.write_text(" on \n")
    assert read_text(file) == "on"


def test_a_missing_file_is_named(file):
    with pytest.raises(HardwareError) as error:
        read_text(file)
    assert str(error.value) == f"{file}: cannot be read: No such file or directory"


def test_a_directory_is_an_error(tmp_path):
    with pytest.raises(HardwareError, match="Is a directory"):
        read_text(tmp_path)


def test_decimal_and_hexadecimal_numbers_are_read(file):
    file.write_text("-1\n")
    assert read_int(file) == -1
    file.write_text("0x10de\n")
    assert read_hex(file) == 0x10DE
    file.write_text("10de")
    assert read_hex(file) == 0x10DE


@pytest.mark.parametrize(("read", "kind"), [(read_int, "decimal"), (read_hex, "hexadecimal")])
def test_text_that_is_not_a_number_is_quoted(file, read, kind):
    file.write_text("plenty")
    with pytest.raises(HardwareError) as error:
        read(file)
    assert str(error.value) == f"{file}: expected a {kind} number, found 'plenty'"


def test_cpu_lists_are_read(file):
    file.write_text("0-1,4\n")
    assert read_cpuset(file) == {0, 1, 4}
    file.write_text("0-x")
    with pytest.raises(HardwareError, match="value: CPU list '0-x'"):
        read_cpuset(file)


def test_only_a_missing_file_is_none_where_the_rest_is_essential(file):
    assert read_if_exists(read_int, file) is None
    assert read_if_exists(read_int, file / "below a file") is None
    file.write_text("3")
    assert read_if_exists(read_int, file) == 3
    file.write_text("?")
    with pytest.raises(HardwareError):
        read_if_exists(read_int, file)


def test_what_only_describes_is_none_and_remembered(file):
    with collecting_omissions() as omissions:
        assert read_optional(read_int, file) is None
        file.write_text("3")
        assert read_optional(read_int, file) == 3
        assert omissions == set()
        file.write_text("?")
        assert read_optional(read_int, file) is None
    reason = f"{file}: expected a decimal number, found '?'"
    assert omissions == {Omission(str(file), reason, is_device=False)}
    assert read_optional(read_int, file) is None  # outside of a discovery too


@pytest.mark.parametrize("kind", sorted(set(FAULTS) - {"missing"}))
def test_whatever_the_kernel_answers_instead_of_a_number_is_remembered(file, kind):
    file.write_text("3")
    with injected(HostFault(file, kind)), collecting_omissions() as omissions:
        assert read_optional(read_int, file) is None
    [omission] = omissions
    assert (omission.subject, omission.reason.startswith(f"{file}: ")) == (str(file), True)
    assert len(omission.reason) < len(str(file)) + 150


def test_a_value_that_is_not_set_now_is_no_omission(file):
    file.write_text("3")
    for kind, count in (("EINVAL", 0), ("EIO", 1)):
        with injected(HostFault(file, kind)), collecting_omissions() as omissions:
            assert read_optional(read_int, file, may_be_unset=True) is None
        assert len(omissions) == count


def test_values_have_limits(file, tmp_path):
    file.write_bytes(b"1" * SMALL)
    assert len(read_text(file)) == SMALL
    file.write_bytes(b"1" * (SMALL + 1))
    with pytest.raises(HardwareError, match="value: cannot be read: is larger than 64 KiB"):
        read_text(file)
    assert len(read_large_text(file)) == SMALL + 1
    with pytest.raises(HardwareError, match="is larger than 16384 KiB"):
        read_large_text(Path("/dev/zero"))
    os.mkfifo(tmp_path / "pipe")
    assert read_text(tmp_path / "pipe") == ""


def test_a_loop_of_links_is_named(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(HardwareError, match="loop: cannot be read: Too many levels of symbolic links"):
        read_text(loop)
    with pytest.raises(HardwareError, match="loop: cannot be followed: Too many levels"):
        real_path(loop)
    with pytest.raises(HardwareError, match="loop: cannot be listed: Too many levels"):
        entries(loop)


def test_a_file_instead_of_a_link_is_named(file):
    assert link_target(file) is None
    file.write_text("")
    assert target_if_link(file) is None
    with pytest.raises(HardwareError, match="value: cannot be read: Invalid argument"):
        link_target(file)


def test_the_target_of_a_link_need_not_exist(tmp_path):
    (tmp_path / "driver").symlink_to("../../bus/pci/drivers/vfio-pci")
    assert link_target_name(tmp_path / "driver") == "vfio-pci"
    assert link_target_name(tmp_path / "iommu_group") is None


def test_numbered_entries_are_in_the_order_of_their_number(tmp_path):
    for name in ("node10", "node2", "node0", "nodes", "node", "has_node1"):
        (tmp_path / name).mkdir()
    assert list(numbered_paths(tmp_path, "node").items()) == [(n, tmp_path / f"node{n}") for n in (0, 2, 10)]
    assert numbered_paths(tmp_path / "absent", "node") == {}


def test_a_file_instead_of_a_directory_is_named(file):
    file.write_text("")
    with pytest.raises(HardwareError, match="value: cannot be listed: Not a directory"):
        numbered_paths(file, "node")


def test_the_device_node_of_a_device_is_read(tmp_path):
    (tmp_path / "uevent").write_text("MAJOR=261\nMINOR=0\nDEVNAME=accel/accel0\n")
    assert device_file(tmp_path) == "/dev/accel/accel0"


@pytest.mark.parametrize("content", ["", "DRIVER=nvme\nPCI_CLASS=10802\n", "DEVNAME=\n"])
def test_a_device_without_a_device_node_is_named(tmp_path, content):
    (tmp_path / "uevent").write_text(content)
    with pytest.raises(HardwareError, match=f"{tmp_path}/uevent: no DEVNAME: the device has no device node"):
        device_file(tmp_path)


def test_key_values_are_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "uevent"
    file.write_text('DRIVER=accel\nPCI_ID=1234:5678\nno value\n=odd\nNAME="a=b"\nDRIVER=vfio-pci\n')
    assert read_key_values(file) == {"DRIVER": "vfio-pci", "PCI_ID": "1234:5678", "NAME": '"a=b"'}
    with pytest.raises(HardwareError, match="cannot be read"):
        read_key_values(tmp_path / "none")
