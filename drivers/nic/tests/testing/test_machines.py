"""Discovery on servers as their kernels show them: one of each kind of card."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from dra_driver_nic import NicDriver, NicSettings
from dra_driver_nic.describe.devices import SRIOV
from dra_driver_nic.testing.machines import MACHINES

from dra_sdk import HealthStatus
from dra_sdk.testing import DriverHarness, FakeNode, claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
MACHINE_NAMES = list(MACHINES)


@pytest.fixture
def plugged(dra_node: FakeNode, dra_driver: Any) -> Any:
    def plug(machine: str, settings: NicSettings | None = None) -> DriverHarness:
        MACHINES[machine].write(dra_node)
        harness: DriverHarness = dra_driver(
            partial(NicDriver, effects=dra_node.effects, interval=0.05), settings=settings or NicSettings()
        )
        return harness

    return plug


def facts(driver: DriverHarness, device: str, *names: str) -> Mapping[str, object]:
    """Return some attributes of a device; None for one that it does not have."""
    values = driver.devices[device].attributes
    return {name.removeprefix(f"{SRIOV}/"): values.get(name) for name in names}


@pytest.mark.parametrize("machine", [name for name in MACHINE_NAMES if name != "hundreds-of-vfs"])
@pytest.mark.parametrize("mode", ["individual", "partitionable"])
def test_every_release_accepts_its_slices(plugged: Any, machine: str, mode: Any) -> None:
    driver = plugged(machine, NicSettings(device_mode=mode))
    driver.assert_publishable()
    assert driver.devices


@pytest.mark.parametrize(
    ("machine", "device", "wanted"),
    [
        (
            "mlx5",
            "pci-0000-3b-00-2",
            {
                "ifName": "ens1f0v0",
                "kernelDriver": "mlx5_core",
                "rdmaDevice": "mlx5_2",
                "speed": 100000,
                "numaNode": 0,
                "pcieSwitch": "0000:38:00.0",
                "resource.kubernetes.io/pcieRoot": "pci0000:3a",
                f"{SRIOV}/PFName": "ens1f0np0",
                f"{SRIOV}/vfID": 0,
                f"{SRIOV}/pfPciAddress": "0000:3b:00.0",
                f"{SRIOV}/EswitchMode": "legacy",
            },
        ),
        (
            "mlx5",
            "pci-0000-3b-00-1",
            {
                "ifName": "ens1f1np1",
                "carrier": False,
                "state": "down",
                "speed": None,
                "rdmaPortState": "DOWN",
                "sriov": True,
                "sriovVfs": 0,
                "eswitchMode": "legacy",
                "firmware": "22.41.1000",
                "vendor": "15b3",
                "deviceID": "101d",
            },
        ),
        ("mlx5-switchdev", "pci-0000-3b-00-5", {"ifName": "ens1f0v3", f"{SRIOV}/EswitchMode": "switchdev"}),
        (
            "mlx5-infiniband",
            "pci-0000-5e-00-1",
            {
                "encapsulation": "infiniband",
                "rdmaLinkLayer": "InfiniBand",
                "rdmaPortState": "ACTIVE",
                "rdmaNodeGuid": "0c42:a103:0065:1234",
                "rdmaPortGuid": "0c42:a103:0065:1234",
                "rdmaPKeys": "0xffff,0x8001",
                "speed": 400000,
                f"{SRIOV}/linkType": "infiniband",
            },
        ),
        ("ixgbe", "pci-0000-04-10-6", {"ifName": "enp4s0f0v3", "rdma": False, f"{SRIOV}/PFName": "enp4s0f0"}),
        ("ixgbe", "pci-0000-04-10-1", {"ifName": "enp4s0f1v0", "kernelDriver": "ixgbevf", f"{SRIOV}/vfID": 0}),
        ("i40e", "pci-0000-18-02-3", {"ifName": "enp24s0f0v3", "kernelDriver": "iavf", "state": "up"}),
        (
            "i40e",
            "pci-0000-18-0a-1",
            {"ifName": None, "kernelDriver": "vfio-pci", "speed": 10000, f"{SRIOV}/vfID": 1},
        ),
        ("ice", "pci-0000-31-11-0", {"ifName": "ens3f1v0", "rdma": False, f"{SRIOV}/deviceID": "1889"}),
        ("bnxt", "pci-0000-65-02-1", {"rdmaDevice": "bnxt_re3", "firmware": "230.0.157.0", "rdmaPKeys": None}),
        (
            "efa",
            "pci-0000-80-1b-0",
            {
                "ifName": None,
                "rdmaDevice": "rdmap128s27",
                "rdmaLinkLayer": "Unspecified",
                "rdmaNodeGuid": None,
                "resource.kubernetes.io/numaNode": 1,
                "resource.kubernetes.io/pcieRoot": "pci0000:80",
            },
        ),
        ("efa", "pci-0000-00-05-0", {"ifName": "ens5", "kernelDriver": "ena", "speed": None, "sriov": False}),
        ("virtio", "pci-0000-00-03-0", {"ifName": "enp0s3", "kernelDriver": "virtio-pci", "numaNode": None}),
        ("virtio", "dummy0", {"type": "dummy", "virtual": True, "pciAddress": None}),
    ],
)
def test_what_is_published_of_a_card(plugged: Any, machine: str, device: str, wanted: Mapping[str, object]) -> None:
    assert facts(plugged(machine), device, *wanted) == {
        name.removeprefix(f"{SRIOV}/"): value for name, value in wanted.items()
    }


def test_representors_and_a_pf_in_switchdev_mode_are_no_devices(plugged: Any) -> None:
    driver = plugged("mlx5-switchdev", NicSettings(device_mode="partitionable"))
    names = {device.attributes["ifName"] for device in driver.devices.values()}
    assert names == {"ens1f0v0", "ens1f0v1", "ens1f0v2", "ens1f0v3", "ens1f1np1"}


def test_bridges_of_a_virtual_machine_are_no_devices(plugged: Any) -> None:
    assert set(plugged("virtio").devices) == {"pci-0000-00-03-0", "dummy0"}


def test_each_function_has_the_bandwidth_of_its_port(plugged: Any) -> None:
    driver = plugged("mlx5")
    assert {name: device.capacity for name, device in driver.devices.items() if not device.capacity} == {
        "pci-0000-3b-00-1": {}
    }
    asked = claim(request(capacity={"bandwidth": "100G"}))
    assert driver.prepare(asked).names == ["pci-0000-3b-00-2"]


@pytest.mark.timeout(300)
def test_hundreds_of_vfs_are_published_in_several_slices(dra_node: FakeNode, dra_driver: Any) -> None:
    MACHINES["hundreds-of-vfs"].write(dra_node)  # once, for it has 15 000 files
    modes: Any = {"individual": [122, 128], "partitionable": [0, 59, 64, 64, 64]}
    for mode, sizes in modes.items():
        make = partial(NicDriver, effects=dra_node.effects)
        driver = dra_driver(make, settings=NicSettings(device_mode=mode))
        driver.assert_publishable()
        numbers = [device.attributes.get(f"{SRIOV}/vfID") for device in driver.devices.values()]
        assert sorted(number for number in numbers if isinstance(number, int)) == list(range(250))
        assert sorted(len(published["spec"].get("devices", ())) for published in driver.slices()) == sizes


# -- health


def test_a_device_is_unhealthy_while_its_infiniband_port_is_down(plugged: Any) -> None:
    driver = plugged("mlx5-infiniband", NicSettings(settle_seconds=0.01))
    name, port = "pci-0000-5e-00-1", "/sys/class/infiniband/mlx5_2/ports/1/state"
    driver.prepare(claim(request(where='device.attributes["dra.net"].rdmaDevice == "mlx5_2"')))
    with driver.watching_health() as health:
        health.wait(name, HealthStatus.HEALTHY)
        driver.node.file(port, "1: DOWN\n")
        assert health.wait(name, HealthStatus.UNHEALTHY).message == "port 1 of RDMA device mlx5_2 is DOWN"
        assert health.devices["pci-0000-5e-00-2"].status is HealthStatus.HEALTHY
        driver.node.remove("/sys/class/net/ibs2v0")  # its interface is in a pod, and the port is down all the same
        driver.node.file(port, "2: INIT\n")
        while health.devices[name].message != "port 1 of RDMA device mlx5_2 is INIT":
            health.wait(name, HealthStatus.UNHEALTHY)
        driver.node.file(port, "4: ACTIVE\n")
        health.wait(name, HealthStatus.HEALTHY)


def test_an_efa_whose_port_is_down_is_unhealthy(plugged: Any) -> None:
    driver = plugged("efa", NicSettings(settle_seconds=0.01))
    with driver.watching_health() as health:
        health.wait("pci-0000-4f-1b-0", HealthStatus.HEALTHY)
        driver.node.file("/sys/class/infiniband/rdmap79s27/ports/1/state", "1: DOWN\n")
        assert health.wait("pci-0000-4f-1b-0", HealthStatus.UNHEALTHY).message.endswith("rdmap79s27 is DOWN")


def test_a_claimed_vf_that_loses_its_kernel_driver_is_unhealthy(plugged: Any) -> None:
    driver = plugged("ixgbe", NicSettings(settle_seconds=0.01))
    driver.prepare(claim(request(where='has(device.attributes["dra.net"].ifName)')))
    link = "/sys/bus/pci/devices/0000:04:10.0/driver"
    target = str(driver.node.path(link).readlink())
    with driver.watching_health() as health:
        health.wait("pci-0000-04-10-0", HealthStatus.HEALTHY)
        driver.node.remove(link)
        message = health.wait("pci-0000-04-10-0", HealthStatus.UNHEALTHY).message
        assert message == "PCI function 0000:04:10.0 has no kernel driver"
        driver.node.link(link, target)
        health.wait("pci-0000-04-10-0", HealthStatus.HEALTHY)
