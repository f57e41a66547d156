from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk import HardwareError
from dra_sdk.hardware import (
    NUMA_NODE,
    PCI_BUS_ID,
    PCIE_ROOT,
    Host,
    PciDevice,
    PciRoot,
    SriovPf,
    parse_pci_address,
    pci,
    pci_address_of_node,
    pci_attributes,
    pci_device_name,
    read_pci_device,
    read_pci_devices,
    read_pci_roots,
)
from dra_sdk.model.omissions import Omission, collecting_omissions
from dra_sdk.testing.host_faults import HostFault, injected
from dra_sdk.testing.sysfs import FakePci, regular_machine

GPU = FakePci(
    address="0000:3b:00.0",
    vendor=0x10DE,
    device=0x20B0,
    class_code=0x030200,
    root="pci0000:3a",
    bridges=("0000:3a:00.0",),
    driver="nvidia",
    numa_node=1,
    iommu_group=17,
)
PF = FakePci(address="0000:5e:00.0", root="pci0000:5d", driver="ice", total_vfs=8, numa_node=0)
VFS = tuple(
    FakePci(address=f"0000:5e:01.{n}", root="pci0000:5d", driver="vfio-pci", physical_function=PF.address, numa_node=0)
    for n in range(2)
)


def write(root: Path, *functions: FakePci) -> Host:
    return replace(regular_machine(sockets=2, cores=2, threads=1), pci=functions).write(root)


def test_the_functions_of_this_machine_are_read():
    for device in read_pci_devices(Host()):
        assert parse_pci_address(device.address) == device.address
        assert device.root in {root.name for root in read_pci_roots(Host())}


def test_every_field_of_a_function_is_read(tmp_path):
    host = write(tmp_path, GPU)
    assert read_pci_device(host, "0000:3b:00.0") == PciDevice(
        address="0000:3b:00.0",
        path=host.sys / "bus/pci/devices/0000:3b:00.0",
        root="pci0000:3a",
        vendor=0x10DE,
        device=0x20B0,
        subsystem_vendor=0x10DE,
        subsystem_device=0,
        class_code=0x030200,
        driver="nvidia",
        numa_node=1,
        iommu_group=17,
        sriov=None,
        physical_function=None,
    )
    assert read_pci_device(host, "0000:3b:00.0").base_class == 0x03


def test_what_the_platform_does_not_report_is_none(tmp_path):
    device = read_pci_device(write(tmp_path, FakePci(address="0000:00:02.0")), "0000:00:02.0")
    assert (device.numa_node, device.iommu_group, device.driver, device.sriov) == (None, None, None, None)
    (device.path / "numa_node").unlink()
    (device.path / "subsystem_vendor").unlink()
    again = read_pci_device(Host(tmp_path), "0000:00:02.0")
    assert (again.numa_node, again.subsystem_vendor) == (None, None)


def test_physical_and_virtual_functions_refer_to_each_other(tmp_path):
    devices = {device.address: device for device in read_pci_devices(write(tmp_path, PF, *VFS))}
    assert devices[PF.address].sriov == SriovPf(total_vfs=8, vfs=("0000:5e:01.0", "0000:5e:01.1"))
    assert devices[PF.address].physical_function is None
    assert devices["0000:5e:01.1"].physical_function == PF.address
    assert devices["0000:5e:01.1"].sriov is None


def test_virtual_functions_are_in_the_order_of_their_number(tmp_path):
    many = [replace(VFS[0], address=f"0000:5e:{1 + n // 8:02x}.{n % 8}") for n in range(12)]
    host = write(tmp_path, replace(PF, total_vfs=16), *many)
    sriov = read_pci_device(host, PF.address).sriov
    assert sriov is not None
    assert sriov.vfs[11] == "0000:5e:02.3"


def test_a_function_that_supports_no_vf_has_no_sriov(tmp_path):
    host = write(tmp_path, GPU)
    (host.sys / "bus/pci/devices" / GPU.address / "sriov_totalvfs").write_text("0\n")
    assert read_pci_device(host, GPU.address).sriov is None


def test_functions_are_in_the_order_of_their_address(tmp_path):
    vmd = FakePci(address="10000:01:00.0", root="pci0000:85", bridges=("0000:85:05.5", "pci10000:00", "10000:00:02.0"))
    devices = read_pci_devices(write(tmp_path, vmd, PF, GPU))
    assert [device.address for device in devices] == ["0000:3b:00.0", "0000:5e:00.0", "10000:01:00.0"]
    assert devices[2].root == "pci0000:85"


def test_a_machine_may_have_no_pci_bus(tmp_path):
    host = write(tmp_path)
    assert read_pci_devices(host) == ()
    assert read_pci_roots(host) == ()


def test_functions_of_a_class_are_read_alone_and_others_that_are_asked_for(tmp_path):
    host = write(tmp_path, PF, GPU)
    network, display = PF.class_code >> 16, GPU.class_code >> 16
    assert network != display

    def addresses(**which):
        return [device.address for device in read_pci_devices(host, **which)]

    assert addresses(base_class=network) == [PF.address]
    assert addresses(base_class=display) == [GPU.address]
    assert set(addresses(base_class=network, besides={GPU.address, "0000:ff:00.0"})) == {PF.address, GPU.address}
    assert addresses(only={GPU.address, "0000:ff:00.0"}) == [GPU.address]
    (host.sys / "bus/pci/devices" / GPU.address / "vendor").write_text("broken")
    assert addresses(base_class=network) == [PF.address]


def test_root_complexes_have_local_cpus(tmp_path):
    host = write(tmp_path, GPU, PF, FakePci(address="0000:00:02.0"))
    (host.sys / "devices/pci0000:ff").mkdir()
    (host.sys / "devices/pciback").mkdir()
    assert read_pci_roots(host) == (
        PciRoot("pci0000:00", frozenset({0, 1, 2, 3})),
        PciRoot("pci0000:3a", frozenset({2, 3})),
        PciRoot("pci0000:5d", frozenset({0, 1})),
        PciRoot("pci0000:ff", frozenset()),
    )


def test_an_unknown_address_is_named(tmp_path):
    with pytest.raises(HardwareError, match=r"0000:99:00\.0: there is no such PCI device"):
        read_pci_device(write(tmp_path, GPU), "0000:99:00.0")


HYPER_V = "LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/6b1a7e2c-0001-4c8e-9a3e-5d1b2f3c4d5e/pci6b1a:00"
ACPI = "LNXSYSTM:00/LNXSYBUS:00/PNP0A08:00/device:02/pci0000:3a"
ARM = "platform/soc/40000000.pcie/pci0002:00"


@pytest.mark.parametrize(
    ("root", "bridges", "name"),
    [
        (HYPER_V, (), "pci6b1a:00"),
        (ACPI, ("0000:3a:00.0",), "pci0000:3a"),
        (ARM, (), "pci0002:00"),
        ("pci0000:85", ("0000:85:05.5", "pci10000:00", "10000:00:02.0"), "pci0000:85"),
        ("pci0000:3a", ("0000:3a:00.0", "0000:3b:00.0", "0000:3c:08.0", "0000:3d:00.0"), "pci0000:3a"),
        ("platform/virtio-mmio.3", (), None),
    ],
    ids=["hyper-v", "acpi", "platform", "vmd", "bridges", "none"],
)
def test_the_root_is_wherever_the_kernel_puts_it(tmp_path, root, bridges, name):
    """The first root complex of the real path; none if there is none. Address and NUMA node stay."""
    host = write(tmp_path, replace(GPU, root=root, bridges=bridges), PF)
    device = read_pci_device(host, GPU.address)
    assert (device.root, device.address, device.numa_node) == (name, GPU.address, 1)
    assert pci_attributes(device) == {
        **({PCIE_ROOT: name} if name else {}),
        PCI_BUS_ID: GPU.address,
        NUMA_NODE: 1,
    }
    roots = {found.name: found.cpus for found in read_pci_roots(host)}
    assert roots == {PF.root: {0, 1}, **({name: {2, 3}} if name else {})}


@pytest.mark.parametrize("target", ["../../../devices/pci0000:3a/other", "../../x/{}"])
def test_a_link_elsewhere_costs_the_root_at_most(tmp_path, target):
    host = write(tmp_path, GPU)
    link = host.sys / "bus/pci/devices" / GPU.address
    place = link.parent / target.format(GPU.address)
    place.mkdir(parents=True)
    shutil.copytree(link.resolve(), place, symlinks=True, dirs_exist_ok=True)
    link.unlink()
    link.symlink_to(target.format(GPU.address))
    with collecting_omissions() as omissions:
        assert read_pci_device(host, GPU.address).vendor == GPU.vendor
    assert [omission.subject for omission in omissions] == [str(link)]


def test_uevent_says_what_a_function_is_where_its_own_files_do_not(tmp_path):
    host = write(tmp_path, GPU, PF)
    before = read_pci_devices(host)
    for name in ("vendor", "device", "class"):
        (host.sys / "bus/pci/devices" / PF.address / name).write_text("intel\n")
    with collecting_omissions() as omissions:
        assert read_pci_devices(host) == before
    assert {omission.subject.rpartition("/")[2] for omission in omissions} == {"vendor", "device", "class"}


def test_a_function_of_which_nothing_says_what_it_is_costs_itself(tmp_path):
    host = write(tmp_path, GPU, PF)
    path = host.sys / "bus/pci/devices" / PF.address
    (path / "vendor").write_text("intel\n")
    (path / "uevent").write_text("")
    with pytest.raises(HardwareError, match="vendor: expected a hexadecimal number, found 'intel'"):
        read_pci_device(host, PF.address)
    with collecting_omissions() as omissions:
        assert [device.address for device in read_pci_devices(host)] == [GPU.address]
    reason = f"{path}/vendor: expected a hexadecimal number, found 'intel'"
    assert omissions == {Omission(f"PCI function {PF.address}", reason, is_device=True)}


def test_an_iommu_group_without_a_number_is_left_out(tmp_path):
    host = write(tmp_path, PF)
    (host.sys / "bus/pci/devices" / PF.address / "iommu_group").symlink_to("../somewhere")
    with collecting_omissions() as omissions:
        assert [device.iommu_group for device in read_pci_devices(host)] == [None]
    assert [omission.subject.rpartition("/")[2] for omission in omissions] == ["iommu_group"]


def test_a_link_to_a_virtual_function_that_cannot_be_read_keeps_the_number_of_the_others(tmp_path):
    host = write(tmp_path, PF, *VFS)
    link = host.sys / "bus/pci/devices" / PF.address / "virtfn0"
    with injected(HostFault(link, "EIO")):
        sriov = read_pci_device(host, PF.address).sriov
    assert sriov == SriovPf(total_vfs=8, vfs=("", VFS[1].address))


@pytest.mark.parametrize("number", ["", "1024", "one"])
def test_a_numa_node_that_is_none_is_left_out(tmp_path, number):
    host = write(tmp_path, GPU)
    (host.sys / "bus/pci/devices" / GPU.address / "numa_node").write_text(number)
    with collecting_omissions() as omissions:
        assert read_pci_device(host, GPU.address).numa_node is None
    assert len(omissions) == 1


def test_a_function_that_disappears_during_the_call_is_left_out(tmp_path, monkeypatch):
    host = write(tmp_path, GPU, PF)
    directory = host.sys / "devices/pci0000:5d"
    real = pci.read_hex

    def unplug_then_read(path: Path) -> int:
        if directory.exists():
            shutil.rmtree(directory)
            (host.sys / "bus/pci/devices" / PF.address).unlink()
        return real(path)

    monkeypatch.setattr(pci, "read_hex", unplug_then_read)
    assert [device.address for device in read_pci_devices(host)] == [GPU.address]


def test_a_link_that_points_nowhere_is_left_out(tmp_path):
    host = write(tmp_path, GPU, PF)
    shutil.rmtree(host.sys / "devices/pci0000:5d")
    assert [device.address for device in read_pci_devices(host)] == [GPU.address]


def test_a_function_whose_files_are_removed_before_its_link_is_left_out(tmp_path):
    host = write(tmp_path, GPU, PF)
    for name in ("vendor", "uevent"):
        (host.sys / "bus/pci/devices" / PF.address / name).unlink()
    assert [device.address for device in read_pci_devices(host)] == [GPU.address]
    with pytest.raises(HardwareError, match="vendor: cannot be read: No such file"):
        read_pci_device(host, PF.address)


@pytest.mark.parametrize(
    ("text", "address"),
    [("3b:00.0", "0000:3b:00.0"), ("0000:3B:1F.7", "0000:3b:1f.7"), ("10000:e1:00.0", "10000:e1:00.0")],
)
def test_addresses_become_extended_bdfs_in_lower_case(text, address):
    assert parse_pci_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "eth0", "0000:3b:00", "0000:3b:20.0", "0000:3b:00.8", "0000:3g:00.0", "0:3b:00.0"]
)
def test_text_that_is_not_an_address_is_refused(text):
    with pytest.raises(ValueError, match="is not a PCI address such as"):
        parse_pci_address(text)


def test_a_device_node_leads_to_its_function(tmp_path):
    """Links as in sysfs: the device of a class entry is the function, or a part of it."""
    host = write(tmp_path, GPU, PF, *(replace(function, iommu_group=20) for function in VFS))
    for entry, device in {
        "drm/renderD128": "../../../0000:3b:00.0",
        "infiniband_verbs/uverbs0": "../../../0000:5e:00.0",
        "tty/ttyS0": "../../serial8250:0.0",
        "usb/lp0": "../../../0000:3b:00.0",
        "printer/lp0": "../../../0000:5e:00.0",
    }.items():
        path = host.sys / "class" / entry
        path.mkdir(parents=True)
        (path / "device").symlink_to(device)
    paths = ["/dev/dri/renderD128", "/dev/infiniband/uverbs0", "/dev/vfio/17"]
    assert [pci_address_of_node(host, path) for path in paths] == [GPU.address, PF.address, GPU.address]
    for path in ("/dev/ttyS0", "/dev/null", "/dev/lp0", "/dev/vfio/20", "/dev/vfio/vfio", "/dev/vfio/99", "/dev/*"):
        assert pci_address_of_node(host, path) is None


@pytest.mark.parametrize(
    ("address", "prefix", "name"),
    [("0000:3b:00.0", "pci", "pci-0000-3b-00-0"), ("3B:00.1", "vf", "vf-0000-3b-00-1")],
)
def test_a_function_has_a_name_that_stays_with_it(address: str, prefix: str, name: str) -> None:
    assert pci_device_name(address, prefix) == name


def test_what_is_no_address_has_no_name() -> None:
    with pytest.raises(ValueError, match="'eth0' is not a PCI address"):
        pci_device_name("eth0")
