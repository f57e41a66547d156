"""The driver as a whole: what is published and noticed, RDMA, VFIO, health, and a container runtime."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dra_driver_nic import NicConfig, NicDriver, NicSettings
from dra_driver_nic.config import InterfaceConfig, VfConfig
from dra_driver_nic.network.netlink import LinkEvents
from dra_driver_nic.settings import CLASS_ONLY
from dra_driver_nic.testing import PrivateNetworks, write_interface, write_rdma_device

from dra_sdk import DraError, HealthStatus, PermanentError, RetriableError
from dra_sdk.testing import DriverHarness, FakeNode, claim, request
from dra_sdk.testing.crashes import assert_survives_crashes
from dra_sdk.testing.host_faults import HostFault, injected
from dra_sdk.testing.sysfs import FakePci, regular_machine
from dra_sdk.testing.waiting import wait

pytest_plugins = ["dra_sdk.testing.plugin"]
PF, VF = "0000:3b:00.0", "0000:3b:00.1"
EFA = "0000:5e:00.0"
NAME = "pci-0000-3b-00-1"


def is_called(name: str) -> str:
    """Select the device of an interface; others may have no name."""
    return f'has(device.attributes["dra.net"].ifName) && device.attributes["dra.net"].ifName == "{name}"'


V0, DUMMY, NIC0, NIC1 = (request(where=is_called(name)) for name in ("ens1f0v0", "dummy0", "nic0", "nic1"))


@pytest.fixture
def driver(dra_node: FakeNode, dra_driver: Any) -> DriverHarness:
    """On a tree of files: a PF with two VFs with RDMA, an EFA, and software that is published and that is not."""
    pf = FakePci(address=PF, vendor=0x15B3, device=0x1017, driver="mlx5_core", iommu_group=20, total_vfs=8)
    vf = replace(pf, device=0x1018, total_vfs=0, physical_function=PF)
    vfs = (replace(vf, address=VF, iommu_group=21), replace(vf, address="0000:3b:00.2", iommu_group=22))
    efa = FakePci(address=EFA, vendor=0x1D0F, device=0xEFA1, driver="efa", iommu_group=30)
    loaded = FakePci(address="0000:00:1f.0", class_code=0x010000, driver="vfio-pci", iommu_group=9)
    dra_node.machine(replace(regular_machine(), pci=(pf, *vfs, efa, loaded)))
    write_interface(dra_node, "ens1f0np0", 2, f"pci0000:00/{PF}", mtu=1500, speed=100000)
    for number, vf in enumerate(vfs):
        write_interface(dra_node, f"ens1f0v{number}", 3 + number, f"pci0000:00/{vf.address}", max_mtu=9978)
        write_rdma_device(dra_node, f"mlx5_{number}", f"pci0000:00/{vf.address}", number)
    write_rdma_device(dra_node, "rdmap0s6", f"pci0000:00/{EFA}", 7, layer="Unspecified")
    write_interface(dra_node, "dummy0", 9)
    write_interface(dra_node, "docker0", 10, uevent="DEVTYPE=bridge")
    dra_node.device_node("/dev/vfio/vfio", major=10, minor=196)
    made = partial(NicDriver, effects=dra_node.effects, interval=0.05)
    harness: DriverHarness = dra_driver(made, settings=NicSettings(settle_seconds=0.01, claim_fields=CLASS_ONLY))
    return harness


def test_every_release_accepts_its_slices(driver: DriverHarness) -> None:
    driver.assert_publishable()
    assert list(driver.devices) == ["dummy0", NAME, "pci-0000-3b-00-2", "pci-0000-5e-00-0"]


def test_a_claim_from_before_an_update_keeps_the_name_of_its_subfunction(
    driver: DriverHarness, dra_node: FakeNode
) -> None:
    """The release before called a subfunction like its function, since it did not read the number."""
    write_interface(dra_node, "sf88", 12, f"pci0000:00/{EFA}/mlx5_core.sf.4", mac="02:00:00:00:00:88")
    old, own = "pci-0000-5e-00-0", "pci-0000-5e-00-0-sf88"
    dra_node.remove("/sys/class/infiniband/rdmap0s6")
    prepared = driver.prepare(claim(request(where=is_called("sf88"))))
    assert prepared.names == [old]
    dra_node.file(f"/sys/devices/pci0000:00/{EFA}/mlx5_core.sf.4/sfnum", "88\n")
    write_interface(dra_node, "port", 13, f"pci0000:00/{EFA}", mac="02:00:00:00:00:13")
    driver.restart()
    assert {old, own} & driver.devices.keys() == {old}
    assert driver.devices[old].attributes["ifName"] == "sf88"
    assert driver.prepare(prepared).names == [old]
    driver.unprepare(prepared)
    driver.discover()
    assert [driver.devices[name].attributes["ifName"] for name in (old, own)] == ["port", "sf88"]


@pytest.mark.parametrize(
    ("missing", "module"), [("/dev/infiniband/rdma_cm", "rdma_ucm"), ("/dev/infiniband/uverbs0", "ib_uverbs")]
)
def test_rdma_without_its_device_nodes_is_refused_if_it_is_asked_for(
    driver: DriverHarness, dra_node: FakeNode, missing: str, module: str
) -> None:
    dra_node.remove(missing)
    with pytest.raises(PermanentError, match=f"rdma is true, but the node has no {missing}: load the module {module}"):
        driver.prepare(refused := claim(V0, config=NicConfig(rdma=True)))
    driver.unprepare(refused)
    nodes = driver.prepare(claim(V0)).container().devices
    assert missing not in nodes
    assert len(nodes) == 2


@pytest.mark.parametrize("refused", ["rdma_cm", "uverbs0", "umad0"])
def test_a_device_node_of_rdma_that_is_refused_is_needed_only_if_rdma_is_asked_for(
    driver: DriverHarness, dra_node: FakeNode, refused: str
) -> None:
    path = f"/dev/infiniband/{refused}"
    with injected(HostFault(dra_node.path(path), "EACCES")):
        with pytest.raises(RetriableError, match=rf"device pci-\S+ \(.+\): rdma is true, but .+ has {path}: .*denied"):
            driver.prepare(asked := claim(V0, config=NicConfig(rdma=True)))
        driver.unprepare(asked)
        prepared = driver.prepare(claim(V0))
    nodes = {f"/dev/infiniband/{name}" for name in ("rdma_cm", "uverbs0", "umad0")}
    assert set(prepared.container().devices) == nodes - {path}


def test_a_part_of_a_function_is_not_given_as_a_whole(driver: DriverHarness, dra_node: FakeNode) -> None:
    write_interface(dra_node, "second", 12, f"pci0000:00/{VF}", dev_port=1, mac="02:00:00:00:00:88")
    for name, parts in (("ens1f0v0", f"so are {NAME}-1"), ("second", f"so are {NAME}")):
        with pytest.raises(
            PermanentError, match=f"takes a PCI function as a whole, and this is a part of one; {parts}"
        ):
            driver.prepare(claim(request(where=is_called(name)), config=NicConfig(driver="vfio-pci")))


def test_more_vfs_than_one_slice_holds_are_published(dra_node: FakeNode, dra_driver: Any) -> None:
    pf = FakePci(address=PF, driver="ice", total_vfs=256)
    addresses = [f"0000:3b:{number // 8:02x}.{number % 8}" for number in range(1, 151)]
    vfs = [replace(pf, address=address, total_vfs=0, physical_function=PF) for address in addresses]
    dra_node.machine(replace(regular_machine(), pci=(pf, *vfs)))
    for number, address in enumerate(addresses):
        write_interface(dra_node, f"v{number}", 3 + number, f"pci0000:00/{address}")
    driver = dra_driver(NicDriver)
    driver.assert_publishable()
    assert len(driver.devices) == 150
    assert len(driver.slices()) == 2


def test_users_find_vfs_by_the_attributes_of_the_sriov_driver(driver: DriverHarness) -> None:
    domain = 'device.attributes["sriovnetwork.k8snetworkplumbingwg.io"]'
    asked = claim(request(where=f'has({domain}.PFName) && {domain}.PFName == "ens1f0np0" && {domain}.vfID == 1'))
    assert driver.prepare(asked).names == ["pci-0000-3b-00-2"]


def test_containers_get_the_rdma_nodes_of_their_device(driver: DriverHarness) -> None:
    is_vf = 'device.attributes["dra.net"].isSriovVf'
    prepared = driver.prepare(
        claim(request("a", where=is_vf), request("b", where=is_vf)), containers={"a": ["a"], "both": ["a", "b"]}
    )
    first = {"/dev/infiniband/uverbs0", "/dev/infiniband/umad0", "/dev/infiniband/rdma_cm"}
    assert set(prepared.container("a").devices) == first
    assert set(prepared.container("both").devices) == {*first, "/dev/infiniband/uverbs1", "/dev/infiniband/umad1"}


def test_rdma_may_be_declined_or_required(driver: DriverHarness) -> None:
    prepared = driver.prepare(claim(V0, config=NicConfig(rdma=False)))
    assert not prepared.container().devices
    without = claim(DUMMY, config=NicConfig(rdma=True))
    with pytest.raises(PermanentError, match=r"device dummy0 \(interface dummy0\): rdma is true, but it has no RDMA"):
        driver.prepare(without)


def test_a_device_with_rdma_alone_takes_no_interface(driver: DriverHarness) -> None:
    where = '!has(device.attributes["dra.net"].ifName)'
    prepared = driver.prepare(claim(request(where=where)))
    assert "/dev/infiniband/uverbs7" in prepared.container().devices
    driver.unprepare(prepared)
    configured = claim(request(where=where), config=NicConfig(interface=InterfaceConfig(mtu=9000)))
    with pytest.raises(PermanentError, match="pci-0000-5e-00-0 has no interface, so it takes no interface"):
        driver.prepare(configured)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (NicConfig(interface=InterfaceConfig(mtu=9000)), "mtu 9000 exceeds 1500, the MTU of its physical function"),
        (NicConfig(driver="vfio-pci"), ""),
        (NicConfig(vf=VfConfig(vlan=7)), "has no interface on the node by which its VFs are set"),
    ],
)
def test_what_a_vf_cannot_have_is_refused(driver: DriverHarness, config: NicConfig, message: str) -> None:
    asked = claim(V0, config=config)
    if not message:
        driver.prepare(asked)
        return
    with pytest.raises(DraError, match=message):
        driver.prepare(asked)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (NicConfig(vf=VfConfig(vlan=7)), r"device dummy0 \(interface dummy0\): vf is for virtual functions"),
        (NicConfig(driver="vfio-pci"), r"device dummy0 \(interface dummy0\): driver is vfio-pci, but it is no PCI"),
    ],
)
def test_software_has_no_settings_of_hardware(driver: DriverHarness, config: NicConfig, message: str) -> None:
    with pytest.raises(PermanentError, match=message):
        driver.prepare(claim(DUMMY, config=config))


def test_a_vf_goes_to_a_virtual_machine_and_back(driver: DriverHarness) -> None:
    link = driver.node.path(f"/sys/bus/pci/devices/{VF}/driver")
    iommu = {"enableAPIDevice": True}
    config = {"apiVersion": "dra.net/v1alpha1", "kind": "NicConfig", "driver": "vfio-pci", "iommu": iommu}
    prepared = driver.prepare(claim(V0, config=config))
    assert link.readlink().name == "vfio-pci"
    assert set(prepared.container().devices) == {"/dev/vfio/21", "/dev/vfio/vfio"}
    assert NAME in driver.devices
    driver.node.remove("/sys/class/net/ens1f0v0")
    driver.discover()
    assert driver.devices[NAME].attributes["ifName"] == "ens1f0v0", "it is published as it was"
    driver.node.link("/sys/class/net/ens1f0v0", f"../../devices/pci0000:00/{VF}/net/ens1f0v0")


def test_admin_access_changes_nothing(driver: DriverHarness) -> None:
    held = driver.prepare(claim(V0))
    admin = driver.prepare(claim(request(admin_access=True, where=is_called("ens1f0v0"))))
    assert admin.names == held.names
    assert not admin.container().devices
    driver.unprepare(admin)
    driver.discover()
    assert [claim for claim in driver.held if claim.uid == held.ref.uid]


def test_the_claims_status_and_the_metadata_file_name_the_interface(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    config = NicConfig(interface=InterfaceConfig(name="net1", addresses=("10.1.1.5/24",)), routes=())
    prepared = nic_driver.prepare(claim(NIC0, config=config))
    (status,) = nic_driver.cluster.claims[prepared.ref.uid]["status"]["devices"]
    (mac,) = [link["address"] for link in json.loads(networks.node.ip("-j link show nic0"))]
    assert status["networkData"] == {"interfaceName": "net1", "hardwareAddress": mac, "ips": ["10.1.1.5/24"]}


def test_prepare_and_unprepare_survive_a_kill_at_every_write(driver: DriverHarness) -> None:
    assert assert_survives_crashes(driver, claim(V0), lines=False) > 10


def test_a_reboot_gives_everything_back(nic_driver: DriverHarness) -> None:
    prepared = nic_driver.prepare(claim())
    nic_driver.reboot()
    nic_driver.unprepare(prepared)
    nic_driver.assert_clean()


# -- changes and health


def test_changes_of_interfaces_are_noticed(dra_node: FakeNode, dra_driver: Any, networks: PrivateNetworks) -> None:
    made = partial(NicDriver, open_namespace=networks.open, events=lambda: networks.node.enter(LinkEvents))
    driver = dra_driver(made, settings=NicSettings(software=("veth",), protect=("wire*",)))
    with driver.watching() as watch:
        networks.node.ip("link set nic0 mtu 3000")
        while driver.devices["nic0"].attributes["mtu"] != 3000:
            watch.wait_changed()
        networks.node.ip("link del nic1")
        while "nic1" in driver.devices:
            watch.wait_changed()


def test_a_carrier_that_is_lost_makes_a_device_unhealthy_until_it_is_back(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    with nic_driver.watching_health() as health:
        health.wait("nic0", HealthStatus.HEALTHY)
        networks.node.ip("link set wire0 down")
        assert health.wait("nic0", HealthStatus.UNHEALTHY).message == "interface nic0 has no carrier"
        assert health.devices["nic1"].status is HealthStatus.HEALTHY
        networks.node.ip("link set wire0 up")
        health.wait("nic0", HealthStatus.HEALTHY)


def test_an_interface_that_is_switched_off_is_healthy(nic_driver: DriverHarness, networks: PrivateNetworks) -> None:
    networks.node.ip("link set nic0 down")
    assert nic_driver.health()["nic0"].status is HealthStatus.HEALTHY


def test_the_carrier_of_an_interface_in_a_pod_counts_too(nic_driver: DriverHarness, networks: PrivateNetworks) -> None:
    with nic_driver.nri() as runtime, nic_driver.watching_health() as health:
        pod = networks.add_pod("sandbox-1")
        runtime.run_pod(nic_driver.prepare(claim(NIC0)))
        wait(lambda: "nic0" in pod.ip("link"))
        networks.node.ip("link set wire0 down")
        assert health.wait("nic0", HealthStatus.UNHEALTHY).message == "interface nic0 has no carrier"
        networks.node.ip("link set wire0 up")
        health.wait("nic0", HealthStatus.HEALTHY)


def test_a_kernel_driver_that_goes_makes_a_device_of_a_claim_unhealthy(driver: DriverHarness) -> None:
    driver.prepare(claim(V0))
    with driver.watching_health() as health:
        health.wait(NAME, HealthStatus.HEALTHY)
        driver.node.remove("/sys/class/net/ens1f0v0")
        driver.node.remove("/sys/class/infiniband/mlx5_0")
        driver.node.remove(f"/sys/bus/pci/devices/{VF}/driver")
        message = f"PCI function {VF} has no kernel driver"
        assert health.wait(NAME, HealthStatus.UNHEALTHY).message == message


def test_an_infiniband_port_that_is_down_makes_its_device_unhealthy(dra_node: FakeNode, dra_driver: Any) -> None:
    dra_node.machine(replace(regular_machine(), pci=(FakePci(address=EFA, driver="mlx5_core"),)))
    write_rdma_device(dra_node, "mlx5_0", f"pci0000:00/{EFA}", 0, layer="InfiniBand", state="1: DOWN")
    driver = dra_driver(NicDriver, settings=NicSettings(settle_seconds=0.01))
    with driver.watching_health() as health:
        message = health.wait("pci-0000-5e-00-0", HealthStatus.UNHEALTHY).message
    assert message == "port 1 of RDMA device mlx5_0 is DOWN"


# -- the container runtime


def test_a_pod_gets_its_interface_through_nri_and_the_node_gets_it_back(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    with nic_driver.nri() as runtime:
        pod = networks.add_pod("sandbox-1")
        prepared = nic_driver.prepare(
            claim(
                NIC0,
                config=NicConfig(interface=InterfaceConfig(name="net1")),
            )
        )
        sandbox = runtime.run_pod(prepared)
        assert "net1" in pod.ip("link")
        sandbox.stop()
        assert "nic0" in networks.node.ip("link")
        nic_driver.unprepare(prepared)
    nic_driver.assert_clean()


@pytest.mark.parametrize("header", [True, False], ids=["readable header", "nothing readable"])
def test_a_damaged_state_file_detaches_nothing_and_the_node_says_no(
    nic_driver: DriverHarness, networks: PrivateNetworks, header: bool
) -> None:
    with nic_driver.nri() as runtime:
        pod = networks.add_pod("sandbox-1")
        prepared = nic_driver.prepare(claim(NIC0, name="one"))
        runtime.run_pod(prepared)
        wait(lambda: "nic0" in pod.names())
        (path,) = nic_driver.data.glob("claims*/*.json")
        path.write_bytes(path.read_bytes()[:-4] + b"   \n" if header else path.read_bytes()[:20])
        inside, outside = pod.state(), networks.node.state()
        nic_driver.restart()
        for call in (nic_driver.prepare, nic_driver.unprepare):
            with pytest.raises(DraError, match=r"`dra-sdk state dra\.net` shows, repairs or forgets it"):
                call(prepared)
        if header:
            assert nic_driver.prepare(claim(NIC1, name="two")).names == ["nic1"]
        else:
            with pytest.raises(DraError, match=r"`dra-sdk state dra\.net` shows, repairs or forgets it"):
                nic_driver.prepare(claim(NIC1, name="two"))
        assert pod.state() == inside
        assert networks.node.state() == outside


# -- settings


def test_a_claim_may_set_what_decides_its_network_only_if_a_setting_says_so() -> None:
    assert tuple(NicDriver().dra_driver_info().class_only) == CLASS_ONLY
    some = NicDriver(NicSettings(claim_fields=("vf.vlan", "vf.qos")))
    assert some.dra_driver_info().class_only == ["cni", "vf.trust", "vf.spoofchk"]
    with pytest.raises(ValueError, match=r"claimFields may have cni, .* has vf\.mtu"):
        NicSettings(claim_fields=("cni", "vf.mtu"))


def test_the_readme_has_the_table_of_settings() -> None:
    assert NicSettings.markdown() in (Path(__file__).parents[1] / "README.md").read_text()
