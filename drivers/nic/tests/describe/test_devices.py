"""Names and attributes of devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dra_driver_nic import NicSettings
from dra_driver_nic.describe.devices import NicRecord, attributes, device_name, make_pool, published, with_held_names
from dra_driver_nic.describe.nics import Nic, PhysicalFunction
from dra_driver_nic.network.links import INFINIBAND, Link, NetworkSnapshot
from dra_driver_nic.network.rdma import RdmaDevice, RdmaPort

from dra_sdk.hardware import PciDevice, SriovPf, read_pci_device
from dra_sdk.testing import FakeNode
from dra_sdk.testing.sysfs import FakePci, regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]
LINK = Link(index=5, name="ens1f0v3", mac="02:00:00:00:00:03", mtu=1500, up=True, state="up", carrier=True)
PORT = RdmaPort(
    number=1,
    state="ACTIVE",
    physical_state="LinkUp",
    link_layer="Ethernet",
    gigabits=100.0,
    lid=0,
    interfaces=frozenset(),
    pkeys=(0xFFFF,),
)
RDMA = RdmaDevice(
    name="mlx5_4",
    pci="0000:3b:00.5",
    node_guid="0c42:a103:0065:1234",
    firmware="22.31.1014",
    parent="",
    ports=(PORT,),
    nodes=("/dev/infiniband/uverbs4",),
)


@pytest.fixture
def vf(dra_node: FakeNode) -> Nic:
    """Return a VF with everything that a device can have."""
    pf = FakePci(address="0000:3b:00.0", vendor=0x15B3, device=0x1017, root="pci0000:3a", numa_node=1, total_vfs=8)
    virtual = replace(pf, address="0000:3b:00.5", device=0x1018, driver="mlx5_core", physical_function=pf.address)
    host = dra_node.machine(replace(regular_machine(), pci=(pf, replace(virtual, total_vfs=0))))
    return Nic(
        link=replace(LINK, alias="rail 3"),
        addresses=("10.0.0.3/24", "fd00::3/64"),
        pci=read_pci_device(host, "0000:3b:00.5"),
        pf=PhysicalFunction(pci=read_pci_device(host, "0000:3b:00.0"), number=3, interface="ens1f0np0", link=2),
        speed=100000,
        rdma=(RDMA,),
    )


def test_a_vf_has_the_attributes_of_dranet_and_of_the_sriov_driver(vf: Nic) -> None:
    assert attributes(vf) == {
        "ifName": "ens1f0v3",
        "mac": "02:00:00:00:00:03",
        "mtu": 1500,
        "encapsulation": "ether",
        "alias": "rail 3",
        "state": "up",
        "type": "device",
        "ipv4": "10.0.0.3/24",
        "ipv6": "fd00::3/64",
        "virtual": False,
        "speed": 100000,
        "resource.kubernetes.io/pcieRoot": "pci0000:3a",
        "resource.kubernetes.io/pciBusID": "0000:3b:00.5",
        "resource.kubernetes.io/numaNode": 1,
        "pciAddress": "0000:3b:00.5",
        "kernelDriver": "mlx5_core",
        "numaNode": 1,
        "isSriovVf": True,
        "rdma": True,
        "rdmaDevice": "mlx5_4",
        "rdmaNodeGuid": "0c42:a103:0065:1234",
        "firmware": "22.31.1014",
        "rdmaPortState": "ACTIVE",
        "rdmaLinkLayer": "Ethernet",
        "sriovnetwork.k8snetworkplumbingwg.io/vendor": "15b3",
        "sriovnetwork.k8snetworkplumbingwg.io/deviceID": "1018",
        "sriovnetwork.k8snetworkplumbingwg.io/pfPciAddress": "0000:3b:00.0",
        "sriovnetwork.k8snetworkplumbingwg.io/PFName": "ens1f0np0",
        "sriovnetwork.k8snetworkplumbingwg.io/vfID": 3,
        "sriovnetwork.k8snetworkplumbingwg.io/linkType": "ethernet",
        "sriovnetwork.k8snetworkplumbingwg.io/rdmaCapable": True,
    }


def test_a_device_with_too_many_attributes_goes_without_the_least_useful(vf: Nic) -> None:
    assert vf.pf is not None
    port = replace(PORT, link_layer="InfiniBand", guid="0c42:a103:0065:1235")
    full = replace(
        vf,
        link=replace(LINK, alias="rail 3", arp_type=INFINIBAND),
        pf=replace(vf.pf, eswitch_mode="legacy"),
        rdma=(replace(RDMA, ports=(port,)),),
    )
    values = attributes(full)
    assert len(values) == 31, "and the capacity bandwidth"
    assert not {"type", "alias", "ipv6"} & values.keys()
    assert (values["ipv4"], values["rdmaPortGuid"], values["rdmaPKeys"]) == (
        "10.0.0.3/24",
        "0c42:a103:0065:1235",
        "0xffff",
    )


def test_a_switch_above_a_function_is_published_and_a_root_port_is_none(dra_node: FakeNode) -> None:
    ports = ("0000:00:01.0", "0000:01:00.0", "0000:02:04.0")
    machine = replace(
        regular_machine(),
        pci=(
            FakePci(address="0000:03:00.0", bridges=ports),
            FakePci(address="0000:09:00.0", bridges=("0000:00:02.0",)),
        ),
    )
    host = dra_node.machine(machine)
    below, direct = (Nic(link=LINK, pci=read_pci_device(host, pci)) for pci in ("0000:03:00.0", "0000:09:00.0"))
    assert attributes(below)["pcieSwitch"] == "0000:01:00.0"
    assert "pcieSwitch" not in attributes(direct)


def test_a_pf_publishes_how_many_vfs_it_has(vf: Nic) -> None:
    assert vf.pf is not None
    values = attributes(Nic(link=LINK, pci=vf.pf.pci))
    assert (values["sriov"], values["sriovVfs"], values["vendor"], values["deviceID"]) == (True, 1, "15b3", "1017")


def test_infiniband_has_an_encapsulation_of_its_own() -> None:
    assert attributes(Nic(link=replace(LINK, arp_type=INFINIBAND)))["encapsulation"] == "infiniband"


def test_as_many_addresses_are_published_as_an_attribute_holds() -> None:
    addresses = tuple(f"10.100.100.{number}/24" for number in (9, 1, 5, 7, 3))
    values = attributes(Nic(link=LINK, addresses=addresses))
    assert values["ipv4"] == "10.100.100.1/24,10.100.100.3/24,10.100.100.5/24,10.100.100.7/24"
    assert "ipv6" not in values


def test_a_long_alias_is_cut_between_characters() -> None:
    assert attributes(Nic(link=replace(LINK, alias="ä" * 40)))["alias"] == "ä" * 32


@pytest.mark.parametrize(
    ("name", "device"), [("eth0", "eth0"), ("mlx5_6", "net-nvwhqnk7gy"), ("Eth0", "net-iv2gqma"), ("a.7", "net-mexdo")]
)
def test_an_interface_in_software_is_named_as_dranet_names_it(name: str, device: str) -> None:
    assert device_name(Nic(link=replace(LINK, name=name))) == device


def test_a_pci_function_is_named_after_its_address_and_port(vf: Nic) -> None:
    assert device_name(vf) == "pci-0000-3b-00-5"
    assert device_name(replace(vf, port=1)) == "pci-0000-3b-00-5-1"


def test_interfaces_that_nothing_tells_apart_are_not_published(vf: Nic) -> None:
    second = replace(vf, link=replace(LINK, index=6, name="ens1f0v3s0"))
    assert published((vf, second), NetworkSnapshot(), NicSettings()) == {}
    part = replace(second, part="sf88")
    names = {"pci-0000-3b-00-5": vf, "pci-0000-3b-00-5-sf88": part}
    assert published((vf, part), NetworkSnapshot(), NicSettings()) == names
    assert published((part,), NetworkSnapshot(), NicSettings()) == {"pci-0000-3b-00-5-sf88": part}


def test_a_device_that_a_claim_has_keeps_the_name_of_an_earlier_release_and_no_other_gets_it(vf: Nic) -> None:
    part = replace(vf, link=replace(LINK, index=6, name="ens1f0v3s0", mac="02:00:00:00:00:88"), part="sf88")
    port, own = "pci-0000-3b-00-5", "pci-0000-3b-00-5-sf88"
    records = {port: NicRecord(claim="uid", attributes=attributes(part))}

    def names(*nics: Nic) -> dict[str, Nic]:
        there = published(nics, NetworkSnapshot(), NicSettings())
        return with_held_names(there, lambda name: records.get(name, NicRecord()))

    assert names(vf, part) == {port: part}
    assert names(vf) == {}, "while a pod has the part, its name is taken"
    records.clear()
    assert names(vf, part) == {port: vf, own: part}
    records[port] = NicRecord(claim="uid", attributes=attributes(vf))
    renamed = replace(vf, link=replace(LINK, name="eth7"))
    assert names(renamed, part) == {port: renamed, own: part}


def test_a_device_that_a_claim_has_keeps_its_attributes(vf: Nic) -> None:
    record = NicRecord(claim="uid", attributes={"ifName": "ens1f0v3"})
    (there,) = make_pool("node-1", {"pci-0000-3b-00-5": vf}, {"pci-0000-3b-00-5": record}).devices
    (away,) = make_pool("node-1", {}, {"pci-0000-3b-00-5": record}).devices
    assert there.attributes == away.attributes == {"ifName": "ens1f0v3"}


def test_a_function_may_have_no_numa_node(vf: Nic) -> None:
    pci: PciDevice | None = vf.pci
    assert pci is not None
    values = attributes(replace(vf, pci=replace(pci, numa_node=None, sriov=SriovPf(total_vfs=0, vfs=()))))
    assert not {"numaNode", "resource.kubernetes.io/numaNode"} & values.keys()
