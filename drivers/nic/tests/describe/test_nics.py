"""Discovery on sysfs trees: physical and virtual functions, ports, RDMA, software."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dra_driver_nic.describe.devices import device_name
from dra_driver_nic.describe.nics import Nic, read_nics
from dra_driver_nic.network.files import FilesNamespace, FilesNetwork
from dra_driver_nic.network.links import Address, Link, NetworkSnapshot
from dra_driver_nic.testing import write_interface, write_rdma_device
from dra_driver_nic.testing.machines import MACHINES

from dra_sdk.hardware import Host
from dra_sdk.testing import FakeNode
from dra_sdk.testing.sysfs import FakePci, regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]
PF = "0000:3b:00.0"
ROOT = "pci0000:3a"
ETHERNET = FakePci(
    address=PF, vendor=0x15B3, device=0x1017, class_code=0x020000, root=ROOT, driver="mlx5_core", numa_node=1
)


def vf_address(number: int) -> str:
    return f"0000:3b:{(number + 2) // 8:02x}.{(number + 2) % 8}"


def plug(node: FakeNode, *pci: FakePci) -> None:
    node.machine(replace(regular_machine(sockets=2), pci=pci))


def plug_pf(node: FakeNode, vfs: int) -> None:
    """Write a PF, ens1f0np0, with VFs ens1f0v0 and so on, and an RDMA device for each."""
    virtual = (
        replace(ETHERNET, address=vf_address(number), device=0x1018, physical_function=PF) for number in range(vfs)
    )
    plug(node, replace(ETHERNET, total_vfs=vfs), *virtual)
    write_interface(node, "ens1f0np0", 2, f"{ROOT}/{PF}", mtu=9000, speed=100000, phys_port_name="p0")
    for number in range(vfs):
        device = f"{ROOT}/{vf_address(number)}"
        write_interface(
            node, f"ens1f0v{number}", 3 + number, device, mac=f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"
        )
        write_rdma_device(node, f"mlx5_{number + 1}", device, number)


def read(node: FakeNode, snapshot: NetworkSnapshot | None = None) -> tuple[Nic, ...]:
    host = Host(node.root)
    return read_nics(host, snapshot or FilesNetwork(host).snapshot())


def test_a_vf_knows_its_pf_and_its_number(dra_node: FakeNode) -> None:
    plug_pf(dra_node, 3)
    pf, *vfs = read(dra_node)
    assert (str(pf), pf.speed, pf.pf) == ("interface ens1f0np0", 100000, None)
    assert pf.pci is not None
    assert pf.pci.sriov is not None
    assert len(pf.pci.sriov.vfs) == 3
    for number, vf in enumerate(vfs):
        assert vf.link is not None
        assert vf.link.name == f"ens1f0v{number}"
        assert vf.pf is not None
        assert (vf.pf.number, vf.pf.interface, vf.pf.link, vf.pf.mtu) == (number, "ens1f0np0", 2, 9000)
        assert [device.name for device in vf.rdma] == [f"mlx5_{number + 1}"]
        assert vf.rdma[0].nodes == (f"/dev/infiniband/umad{number}", f"/dev/infiniband/uverbs{number}")


def test_more_vfs_than_a_slice_holds(dra_node: FakeNode) -> None:
    plug_pf(dra_node, 200)
    nics = read(dra_node)
    assert len(nics) == 201
    assert [nic.pf.number for nic in nics if nic.pf is not None] == list(range(200))


def test_two_ports_of_one_function_have_their_own_interface_and_rdma_device(dra_node: FakeNode) -> None:
    plug(dra_node, replace(ETHERNET, driver="mlx4_core"))
    for port in (0, 1):
        write_interface(dra_node, f"ens1d{port}", 2 + port, f"{ROOT}/{PF}", dev_port=port)
        write_rdma_device(dra_node, f"mlx4_{port}", f"{ROOT}/{PF}", port, interfaces=[f"ens1d{port}"])
    nics = read(dra_node)
    assert [(nic.port, nic.rdma[0].name) for nic in nics] == [(0, "mlx4_0"), (1, "mlx4_1")]


def test_a_representor_of_a_vf_is_no_device(dra_node: FakeNode) -> None:
    plug_pf(dra_node, 1)
    write_interface(dra_node, "ens1f0r0", 20, f"{ROOT}/{PF}", phys_port_name="pf0vf0")
    assert [str(nic) for nic in read(dra_node)] == ["interface ens1f0np0", "interface ens1f0v0"]


def test_a_virtio_interface_belongs_to_the_function_above_it(dra_node: FakeNode) -> None:
    plug(dra_node, FakePci(address="0000:00:03.0", vendor=0x1AF4, device=0x1000, driver="virtio-pci"))
    write_interface(dra_node, "eth0", 2, "pci0000:00/0000:00:03.0/virtio0")
    (nic,) = read(dra_node)
    assert nic.pci is not None
    assert nic.pci.driver == "virtio-pci"


def test_a_device_with_rdma_alone(dra_node: FakeNode) -> None:
    """As an EFA, which has no network interface."""
    plug(dra_node, replace(ETHERNET, vendor=0x1D0F, device=0xEFA1, driver="efa"))
    write_rdma_device(dra_node, "rdmap0s6", f"{ROOT}/{PF}", 0, layer="Unspecified")
    (nic,) = read(dra_node)
    assert (str(nic), nic.link, nic.infiniband) == ("RDMA device rdmap0s6", None, False)


def test_infiniband_is_known_by_its_interface_and_by_its_ports(dra_node: FakeNode) -> None:
    plug(dra_node, ETHERNET)
    write_rdma_device(dra_node, "mlx5_0", f"{ROOT}/{PF}", 0, layer="InfiniBand")
    assert [nic.infiniband for nic in read(dra_node)] == [True]
    write_interface(dra_node, "ibs1", 2, f"{ROOT}/{PF}", type=32)
    assert [nic.infiniband for nic in read(dra_node)] == [True]


def test_an_rdma_device_in_software_belongs_to_its_interface(dra_node: FakeNode) -> None:
    plug(dra_node, ETHERNET)
    write_interface(dra_node, "ens1", 2, f"{ROOT}/{PF}")
    write_rdma_device(dra_node, "rxe0", "virtual", 0)
    dra_node.file("/sys/devices/virtual/infiniband/rxe0/parent", "ens1\n")
    (nic,) = read(dra_node)
    assert [device.name for device in nic.rdma] == ["rxe0"]


def test_a_port_has_its_state(dra_node: FakeNode) -> None:
    plug_pf(dra_node, 1)
    (port,) = read(dra_node)[1].rdma[0].ports
    assert (port.state, port.physical_state, port.link_layer) == ("ACTIVE", "LinkUp", "Ethernet")
    assert (port.gigabits, port.lid, port.pkeys) == (100.0, 0x1F, (0xFFFF,))


def test_a_speed_that_is_not_known_is_none(dra_node: FakeNode) -> None:
    plug(dra_node, ETHERNET)
    write_interface(dra_node, "ens1", 2, f"{ROOT}/{PF}", speed=-1)
    assert read(dra_node)[0].speed is None


def test_global_addresses_belong_to_a_device(dra_node: FakeNode) -> None:
    addresses = (Address(address="10.0.0.1/24"), Address(address="fe80::1/64", scope=253))
    snapshot = NetworkSnapshot([Link(index=2, name="eth0")], {2: addresses})
    assert [nic.addresses for nic in read(dra_node, snapshot)] == [("10.0.0.1/24",)]


@pytest.mark.parametrize("machine", [name for name in MACHINES if name != "hundreds-of-vfs"])  # a large `mlx5`
def test_a_device_that_is_read_alone_is_the_same(dra_node: FakeNode, machine: str) -> None:
    MACHINES[machine].write(dra_node)
    snapshot = FilesNamespace(dra_node.node).run(lambda network: network.snapshot())
    nics = read_nics(dra_node.node, snapshot)
    assert nics
    for nic in nics[:20]:
        places = {nic.pci.address} if nic.pci is not None else {nic.link.name} if nic.link is not None else set()
        alone = read_nics(dra_node.node, snapshot, places)
        assert nic in alone
        if nic.pf is not None:
            assert {other.pci.address for other in alone if other.pci is not None} == {*places, nic.pf.pci.address}


def test_nothing_is_read_where_no_device_is(dra_node: FakeNode) -> None:
    MACHINES["mlx5"].write(dra_node)
    snapshot = FilesNamespace(dra_node.node).run(lambda network: network.snapshot())
    assert read_nics(dra_node.node, snapshot, {"0000:ff:00.0", "eth77"}) == ()


def test_parts_of_a_function_are_told_by_numbers_of_their_own(dra_node: FakeNode) -> None:
    """Whatever else there is: the subfunction alone has the name that it has beside its port and other parts."""
    plug(dra_node, ETHERNET)
    subfunction = f"{ROOT}/{PF}/mlx5_core.sf.4"
    dra_node.file(f"/sys/devices/{subfunction}/sfnum", "88\n")
    write_interface(dra_node, "en3f0pf0sf88", 9, subfunction)
    assert [device_name(nic) for nic in read(dra_node)] == ["pci-0000-3b-00-0-sf88"]
    write_rdma_device(dra_node, "mlx5_9", f"{ROOT}/{PF}/mlx5_core.sf.5", 9, interfaces=["in-a-pod"])
    dra_node.file(f"/sys/devices/{ROOT}/{PF}/mlx5_core.sf.5/sfnum", "89\n")
    write_interface(dra_node, "a1", 3, f"{ROOT}/{PF}", dev_id="0x1")
    write_interface(dra_node, "zz", 2, f"{ROOT}/{PF}", dev_id="0x0")
    write_interface(dra_node, "b1", 4, f"{ROOT}/{PF}", dev_id="0x1", dev_port=1)
    names = {str(nic): device_name(nic).removeprefix("pci-0000-3b-00-0") for nic in read(dra_node)}
    assert names == {
        "interface zz": "",
        "interface a1": "-id1",
        "interface b1": "-1",
        "interface en3f0pf0sf88": "-sf88",
        "RDMA device mlx5_9": "-sf89",
    }


def test_a_partition_of_infiniband_has_its_key_in_its_name(dra_node: FakeNode) -> None:
    plug(dra_node, ETHERNET)
    write_interface(dra_node, "ib0", 2, f"{ROOT}/{PF}", type=32, pkey="0xffff")
    write_interface(dra_node, "ib0.8001", 3, f"{ROOT}/{PF}", type=32, pkey="0x8001")
    parent = Link(index=2, name="ib0", mac="", mtu=1500, up=True, state="up", carrier=True, arp_type=32, kind="ipoib")
    child = replace(parent, index=3, name="ib0.8001", parent=2)
    nics = read(dra_node, NetworkSnapshot(links=(parent, child)))
    assert [device_name(nic) for nic in nics] == ["pci-0000-3b-00-0", "pci-0000-3b-00-0-p8001"]
