"""RDMA devices go to pods and come back: real namespaces, RDMA netlink in memory.

In the kernel's exclusive mode, those of hardware move. Those in software are removed here and made again there.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from dra_driver_nic import NicConfig, NicDriver, NicSettings
from dra_driver_nic.network.links import NetworkError
from dra_driver_nic.testing import (
    PrivateNetworks,
    run_sandbox,
    stop_sandbox,
    wait_for_state,
    write_interface,
    write_rdma_device,
)
from dra_driver_nic.testing.fake_rdma import RdmaKernel, namespace_of_thread

from dra_sdk import PermanentError, RetriableError
from dra_sdk.testing import DriverHarness, FakeNode, claim, request
from dra_sdk.testing.sysfs import FakePci, regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]
EFA = "0000:5e:00.0"
NIC0 = request("nic", where='device.attributes["dra.net"].?ifName.orValue("") == "nic0"')
ALONE = request("efa", where='device.attributes["dra.net"].?rdmaDevice.orValue("") == "rdmap0s6"')


@pytest.fixture
def kernel(networks: PrivateNetworks) -> RdmaKernel:
    return RdmaKernel(networks.node, "rxe0", "rdmap0s6")


@pytest.fixture
def driver(dra_node: FakeNode, dra_driver: Any, networks: PrivateNetworks, kernel: RdmaKernel) -> DriverHarness:
    """nic0 has the RDMA device rxe0; rdmap0s6 is a function with RDMA alone."""
    dra_node.machine(replace(regular_machine(), pci=(FakePci(address=EFA, vendor=0x1D0F, driver="efa"),)))
    write_rdma_device(dra_node, "rxe0", "virtual/rdma", 0, interfaces=["nic0"])
    write_rdma_device(dra_node, "rdmap0s6", f"pci0000:00/{EFA}", 7, layer="Unspecified")
    settings = NicSettings(software=("veth",), protect=("wire*",))
    made = partial(NicDriver, effects=dra_node.effects, open_namespace=networks.open, open_rdma=kernel.open)
    harness: DriverHarness = dra_driver(made, settings=settings)
    return harness


def test_an_rdma_device_goes_to_the_pod_with_its_interface_and_comes_back(
    driver: DriverHarness, networks: PrivateNetworks, kernel: RdmaKernel
) -> None:
    before, pod = networks.node.state(), networks.add_pod("pod1")
    prepared = driver.prepare(claim(NIC0))
    nodes = {"/dev/infiniband/uverbs0", "/dev/infiniband/umad0", "/dev/infiniband/rdma_cm"}
    assert set(prepared.container().devices) == nodes
    made = run_sandbox(driver, "pod1")
    assert kernel.names_in(pod) == {"rxe0"}
    assert "nic0" in pod.names()
    stop_sandbox(driver, made)
    assert kernel.names_in(networks.node) == {"rxe0", "rdmap0s6"}
    driver.unprepare(prepared)
    assert kernel.moved == ["rxe0", "rxe0"]
    wait_for_state(networks.node, before)


def test_a_device_with_rdma_alone_goes_to_the_pod(
    driver: DriverHarness, networks: PrivateNetworks, kernel: RdmaKernel
) -> None:
    pod = networks.add_pod("pod1")
    prepared = driver.prepare(claim(ALONE))
    run_sandbox(driver, "pod1")
    assert kernel.names_in(pod) == {"rdmap0s6"}
    driver.restart()
    driver.unprepare(prepared)
    assert kernel.names_in(networks.node) == {"rxe0", "rdmap0s6"}
    driver.assert_clean()


def test_a_container_gets_the_device_nodes_of_all_devices_of_its_claim(
    driver: DriverHarness, kernel: RdmaKernel
) -> None:
    kernel.exclusive = False
    prepared = driver.prepare(claim(NIC0, ALONE))
    names = ("uverbs0", "umad0", "uverbs7", "umad7", "rdma_cm")
    assert sorted(prepared.container().devices) == sorted(f"/dev/infiniband/{name}" for name in names)


@pytest.mark.parametrize("config", [NicConfig(), NicConfig(rdma=False)])
def test_nothing_moves_in_the_shared_mode_or_without_rdma(
    driver: DriverHarness, networks: PrivateNetworks, kernel: RdmaKernel, config: NicConfig
) -> None:
    kernel.exclusive = config.rdma is False
    networks.add_pod("pod1")
    prepared = driver.prepare(claim(NIC0, config=config))
    run_sandbox(driver, "pod1")
    driver.unprepare(prepared)
    assert kernel.moved == []


def test_an_rdma_device_that_cannot_move_undoes_all_of_the_pod(
    driver: DriverHarness, networks: PrivateNetworks, kernel: RdmaKernel
) -> None:
    before, pod = networks.node.state(), networks.add_pod("pod1")
    prepared = driver.prepare(claim(ALONE, NIC0))
    kernel.refused = errno.EOPNOTSUPP
    message = "refused to move RDMA device rdmap0s6 to another network namespace: Operation not supported"
    with pytest.raises(NetworkError, match=message):
        run_sandbox(driver, "pod1")
    assert kernel.names_in(pod) == set()
    assert pod.names() == {"lo"}
    wait_for_state(networks.node, before)
    driver.unprepare(prepared)
    driver.assert_clean()


def test_a_device_that_has_left_the_machine_is_reported(
    driver: DriverHarness, networks: PrivateNetworks, kernel: RdmaKernel
) -> None:
    networks.add_pod("pod1")
    driver.prepare(claim(NIC0))
    del kernel.where["rxe0"]
    with pytest.raises(RetriableError, match=r"nic0\): RDMA device rxe0 is not on the node; it may have gone$"):
        run_sandbox(driver, "pod1")


def test_a_namespace_that_ended_has_returned_its_device_already(
    driver: DriverHarness, networks: PrivateNetworks, kernel: RdmaKernel
) -> None:
    networks.add_pod("pod1")
    prepared = driver.prepare(claim(ALONE))
    run_sandbox(driver, "pod1")
    networks.end_pod("pod1")
    kernel.where["rdmap0s6"] = networks.node.enter(namespace_of_thread)
    driver.unprepare(prepared)
    driver.assert_clean()


def test_an_interface_of_infiniband_is_refused_in_the_exclusive_mode(
    dra_node: FakeNode, dra_driver: Any, kernel: RdmaKernel
) -> None:
    dra_node.machine(replace(regular_machine(), pci=(FakePci(address=EFA, driver="mlx5_core"),)))
    write_interface(dra_node, "ib0", 2, f"pci0000:00/{EFA}", type=32)
    write_rdma_device(dra_node, "mlx5_0", f"pci0000:00/{EFA}", 7, layer="InfiniBand")
    driver = dra_driver(partial(NicDriver, effects=dra_node.effects, open_rdma=kernel.open))
    asked = claim()
    with pytest.raises(PermanentError, match=r"\(interface ib0\): RDMA devices move to pods here"):
        driver.prepare(asked)
    kernel.exclusive = False
    prepared = driver.prepare(asked)
    assert "/dev/infiniband/uverbs7" in prepared.container().devices


@pytest.fixture
def software(dra_node: FakeNode, dra_driver: Any, networks: PrivateNetworks, kernel: RdmaKernel) -> DriverHarness:
    """nic0 has the RDMA device rxe0, which stands on it."""
    del kernel.where["rdmap0s6"]
    kernel.exclusive = False
    write_rdma_device(dra_node, "rxe0", "virtual/rdma", 0, interfaces=["nic0"], parent="nic0")
    made = partial(NicDriver, effects=dra_node.effects, open_namespace=networks.open, open_rdma=kernel.open)
    harness: DriverHarness = dra_driver(made, settings=NicSettings(software=("veth",), protect=("wire*",)))
    return harness


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_device_in_software_is_made_again_in_the_pod_and_on_the_node(
    software: DriverHarness, networks: PrivateNetworks, kernel: RdmaKernel, exclusive: bool
) -> None:
    kernel.exclusive = exclusive
    before, pod = networks.node.state(), networks.add_pod("pod1")
    prepared = software.prepare(claim(NIC0, config=NicConfig.model_validate({"interface": {"name": "net1"}})))
    assert "/dev/infiniband/uverbs0" in prepared.container().devices
    made = run_sandbox(software, "pod1")
    assert kernel.names_in(pod) == {"rxe0"}
    stop_sandbox(software, made)
    assert kernel.names_in(networks.node) == {"rxe0"}
    software.unprepare(prepared)
    assert kernel.made == [("rxe0", "net1"), ("rxe0", "nic0")]
    assert kernel.moved == []
    wait_for_state(networks.node, before)
    software.assert_clean()


def test_without_rdma_a_device_in_software_is_made_again_on_the_node_only(
    software: DriverHarness, networks: PrivateNetworks, kernel: RdmaKernel
) -> None:
    networks.add_pod("pod1")
    prepared = software.prepare(claim(NIC0, config=NicConfig(rdma=False)))
    run_sandbox(software, "pod1")
    assert kernel.where == {}
    software.restart()
    software.unprepare(prepared)
    assert kernel.made == [("rxe0", "nic0")]
    software.assert_clean()


def test_a_device_in_software_that_cannot_be_made_undoes_all_of_the_pod(
    software: DriverHarness, networks: PrivateNetworks, kernel: RdmaKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, pod = networks.node.state(), networks.add_pod("pod1")
    prepared = software.prepare(claim(NIC0))
    kernel.refused = errno.EOPNOTSUPP
    with pytest.raises(RetriableError, match="refused to make RDMA device rxe0 on interface nic0"):
        run_sandbox(software, "pod1")
    assert pod.names() == {"lo"}
    wait_for_state(networks.node, before)
    kernel.refused = 0
    software.unprepare(prepared)
    assert kernel.names_in(networks.node) == {"rxe0"}
    software.assert_clean()


def test_a_device_in_software_with_another_device_node_is_refused(
    software: DriverHarness, dra_node: FakeNode, networks: PrivateNetworks, kernel: RdmaKernel
) -> None:
    networks.add_pod("pod1")
    prepared = software.prepare(claim(NIC0))
    dra_node.file("/sys/class/infiniband_verbs/uverbs0/ibdev", "other\n")
    dra_node.file("/sys/class/infiniband_verbs/uverbs3/ibdev", "rxe0\n")
    message = r"has device nodes .*uverbs3.* now, and containers of its claim would get .*uverbs0"
    with pytest.raises(RetriableError, match=message):
        run_sandbox(software, "pod1")
    assert kernel.names_in(networks.node) == {"rxe0"}
    software.unprepare(prepared)
    software.assert_clean()
