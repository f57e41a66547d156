"""Devices that exclude each other, and devices that several claims share, as the scheduler and the driver see them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from dra_driver_nic import NicDriver, NicSettings
from dra_driver_nic.testing.machines import MACHINES

from dra_sdk import PermanentError, RetriableError
from dra_sdk.errors import DeviceHeldError
from dra_sdk.testing import DriverHarness, FakeNode, NotAllocatedError, claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
PARTITIONABLE = NicSettings(device_mode="partitionable")
PF = request(where='device.attributes["dra.net"].ifName == "ens1f0np0"')
VF = request(where='device.attributes["dra.net"].isSriovVf')
GATE = {"DRAPartitionableDevices": False}


@pytest.fixture
def plugged(dra_node: FakeNode, dra_driver: Any) -> Any:
    def plug(machine: str, settings: NicSettings, **options: Any) -> DriverHarness:
        MACHINES[machine].write(dra_node)
        made = partial(NicDriver, effects=dra_node.effects)
        harness: DriverHarness = dra_driver(made, settings=settings, **options)
        return harness

    return plug


# -- a physical function or its virtual ones


def test_a_claimed_pf_makes_its_vfs_unavailable(plugged: Any) -> None:
    driver = plugged("mlx5", PARTITIONABLE)
    prepared = driver.prepare(claim(PF))
    assert prepared.names == ["pci-0000-3b-00-0"]
    with pytest.raises(NotAllocatedError):
        driver.prepare(claim(VF))
    driver.unprepare(prepared)
    assert driver.prepare(claim(VF)).names == ["pci-0000-3b-00-2"]


def test_a_claimed_vf_makes_its_pf_unavailable_but_no_other_vf(plugged: Any) -> None:
    driver = plugged("mlx5", PARTITIONABLE)
    for _ in range(4):
        driver.prepare(claim(VF))
    with pytest.raises(NotAllocatedError):
        driver.prepare(claim(VF))
    with pytest.raises(NotAllocatedError):
        driver.prepare(claim(PF))


def test_the_scheduler_takes_vfs_before_a_whole_pf(plugged: Any) -> None:
    driver = plugged("mlx5", PARTITIONABLE)
    rdma = request(where='device.attributes["dra.net"].rdma', count=5)
    assert driver.prepare(claim(rdma)).names[-1] == "pci-0000-3b-00-5"


@pytest.mark.parametrize(("first", "second"), [(PF, VF), (VF, PF)])
def test_a_scheduler_that_gives_a_pf_and_its_vf_is_refused(plugged: Any, first: Any, second: Any) -> None:
    driver = plugged("mlx5", PARTITIONABLE)
    other = driver.allocate(claim(second))
    driver.cluster.claims.clear()
    prepared = driver.prepare(claim(first))
    with pytest.raises(DeviceHeldError, match=r"takes \d of counter vfs .* is taken by device node-1/"):
        driver.prepare(driver.cluster.adopt(other))
    driver.unprepare(prepared)
    driver.prepare(driver.cluster.adopt(other))


def test_a_server_without_the_feature_gets_vfs_alone(plugged: Any) -> None:
    driver = plugged("mlx5", PARTITIONABLE, version="1.35", feature_gates=GATE)
    driver.prepare(claim(VF))
    with pytest.raises(NotAllocatedError):
        driver.prepare(claim(PF))


def test_a_pf_whose_vf_something_else_uses_is_refused(plugged: Any) -> None:
    driver = plugged("mlx5", PARTITIONABLE)
    driver.node.remove("/sys/class/net/ens1f0v2")  # its interface is in a namespace of something else
    driver.node.remove("/sys/class/infiniband/mlx5_4")
    with pytest.raises(RetriableError, match=r"something else uses its virtual function 0000:3b:00\.4"):
        driver.prepare(claim(PF))


# -- functions for user space


def test_a_vf_without_an_interface_is_for_virtual_machines(plugged: Any) -> None:
    driver = plugged("i40e", NicSettings())
    group = driver.node.path("/sys/bus/pci/devices/0000:18:0a.1/iommu_group").readlink().name
    driver.node.device_node(f"/dev/vfio/{group}", major=511)
    where = 'device.attributes["dra.net"].kernelDriver == "vfio-pci"'
    with pytest.raises(
        PermanentError, match="pci-0000-18-0a-0 has kernel driver vfio-pci, so it has no interface; ask"
    ):
        driver.prepare(claim(request(where=where)))
    config = {"apiVersion": "dra.net/v1alpha1", "kind": "NicConfig", "driver": "vfio-pci"}
    prepared = driver.prepare(claim(request(where=where), config=config))
    assert set(prepared.container().devices) == {f"/dev/vfio/{group}"}
    driver.unprepare(prepared)
    assert driver.node.path("/sys/bus/pci/devices/0000:18:0a.1/driver").readlink().name == "vfio-pci"
    driver.assert_clean()


# -- shared interfaces


def test_claims_share_the_bandwidth_of_an_interface(plugged: Any) -> None:
    driver = plugged("ixgbe", NicSettings(shared=("enp4s0f0",)))
    driver.assert_publishable("1.36", "1.37")
    where = "device.allowMultipleAllocations"
    half = request(where=where, capacity={"bandwidth": "4G"})
    assert driver.devices["pci-0000-04-00-0"].attributes["shared"] is True
    for _ in range(2):
        assert driver.prepare(claim(half)).names == ["pci-0000-04-00-0"]
    with pytest.raises(NotAllocatedError):
        driver.prepare(claim(half))
    assert driver.prepare(claim(request(where=where))).names == ["pci-0000-04-00-0"], "without a guaranteed part"


def test_a_shared_pf_keeps_its_vfs(plugged: Any) -> None:
    driver = plugged("ixgbe", NicSettings(shared=("enp4s0f0",), device_mode="partitionable"))
    driver.assert_publishable()
    driver.prepare(claim(request(where="device.allowMultipleAllocations")))
    own = 'device.attributes["sriovnetwork.k8snetworkplumbingwg.io"].PFName == "enp4s0f0"'
    has = 'has(device.attributes["sriovnetwork.k8snetworkplumbingwg.io"].PFName)'
    assert driver.prepare(claim(request(where=f"{has} && {own}", count=4))).names == [
        f"pci-0000-04-10-{function}" for function in (0, 2, 4, 6)
    ]


def test_a_released_share_can_be_taken_again(plugged: Any) -> None:
    driver = plugged("ixgbe", NicSettings(shared=("enp4s0f0",)))
    half = request(where="device.allowMultipleAllocations", capacity={"bandwidth": "6G"})
    first = driver.prepare(claim(half))
    driver.restart()
    with pytest.raises(NotAllocatedError):
        driver.prepare(claim(half))
    driver.unprepare(first)
    driver.unprepare(driver.prepare(claim(half)))
    driver.assert_clean()
