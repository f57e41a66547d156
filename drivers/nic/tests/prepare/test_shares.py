"""Claims that share an interface: each gets a macvlan or an ipvlan on it, and the interface stays as it is."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dra_driver_nic import NicConfig, NicDriver, NicSettings
from dra_driver_nic.config import EthtoolConfig, InterfaceConfig, VfConfig
from dra_driver_nic.network.links import Network, NetworkError, NetworkNamespace
from dra_driver_nic.testing import (
    PrivateNamespace,
    PrivateNetworks,
    nic_driver,
    run_sandbox,
    sandbox,
    stop_sandbox,
    wait_for_state,
)

from dra_sdk import PermanentError, RetriableError
from dra_sdk.nri import PodSandbox
from dra_sdk.testing import DriverHarness, FakeNode, claim, request
from dra_sdk.testing.waiting import wait

pytest_plugins = ["dra_sdk.testing.plugin"]
SHARED = request(where='device.attributes["dra.net"].ifName == "nic0"')


@pytest.fixture
def driver(dra_node: FakeNode, dra_driver: Any, networks: PrivateNetworks) -> DriverHarness:
    """nic0 is shared."""
    settings = NicSettings(software=("veth",), shared=("nic0",), protect=("wire*",))
    made = partial(NicDriver, effects=dra_node.effects, open_namespace=networks.open)
    harness: DriverHarness = dra_driver(made, settings=settings)
    return harness


class NetworkWithoutIpvlan:
    """The network of a kernel without ipvlan: a macvlan of the kernel stands for one."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def add_ipvlan(self, name: str, parent: int) -> None:
        self._network.add_macvlan(name, parent, "02:00:00:00:00:aa")


class NamespaceWithoutIpvlan:
    def __init__(self, namespace: NetworkNamespace) -> None:
        self._namespace = namespace
        self.handle, self.identity, self.close = namespace.handle, namespace.identity, namespace.close

    def run(self, work: Callable[[Any], Any]) -> Any:
        return self._namespace.run(lambda network: work(NetworkWithoutIpvlan(network)))


def has_ipvlan(networks: PrivateNetworks) -> bool:
    with contextlib.suppress(AssertionError):
        networks.node.ip("link add probe0 link nic0 type ipvlan mode l2", "link del probe0")
        return True
    return False


@pytest.fixture
def ipvlan_driver(dra_node: FakeNode, dra_driver: Any, networks: PrivateNetworks) -> DriverHarness:
    """nic0 is shared; ipvlans are those of the kernel, if it has them."""
    settings = NicSettings(software=("veth",), shared=("nic0",), protect=("wire*",))
    is_real = has_ipvlan(networks)

    def opened(path: Path | None) -> NetworkNamespace:
        namespace = networks.open(path)
        return namespace if is_real else NamespaceWithoutIpvlan(namespace)

    made = partial(NicDriver, effects=dra_node.effects, open_namespace=opened)
    harness: DriverHarness = dra_driver(made, settings=settings)
    return harness


def configured(address: str) -> NicConfig:
    return NicConfig(interface=InterfaceConfig(name="net1", addresses=(address,)))


def share(driver: DriverHarness, networks: PrivateNetworks, number: int) -> tuple[Any, PodSandbox, PrivateNamespace]:
    """Make a claim with a share, its pod's sandbox that runs, and the namespace of that."""
    pod = networks.add_pod(f"pod{number}")
    prepared = driver.prepare(claim(SHARED, config=configured(f"10.50.0.{number}/24")))
    (held,) = [claim for claim in driver.held if claim.uid == prepared.ref.uid]
    made = replace(sandbox(driver, f"pod{number}", f"uid-{number}"), claims=(held,))
    nic_driver(driver).dra_run_pod_sandbox(made, driver.node.node)
    return prepared, made, pod


def test_several_claims_get_a_macvlan_each_and_reach_each_other(
    driver: DriverHarness, networks: PrivateNetworks
) -> None:
    before = networks.node.state()
    names = networks.node.names()
    shares = [share(driver, networks, number) for number in (1, 2)]
    assert networks.node.names() == names
    for number, (prepared, _, pod) in enumerate(shares, start=1):
        (link,) = json.loads(pod.ip("-d -j link show net1"))
        assert (link["linkinfo"]["info_kind"], link["mtu"]) == ("macvlan", 4000)
        (status,) = driver.cluster.claims[prepared.ref.uid]["status"]["devices"]
        assert status["networkData"]["hardwareAddress"] == link["address"]
        assert status["networkData"]["ips"] == [f"10.50.0.{number}/24"]
    receiver, sender = (pod for _, _, pod in shares)
    listening = receiver.enter(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with listening, sender.enter(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sending:
        listening.settimeout(20)
        listening.bind(("10.50.0.1", 7777))
        sending.sendto(b"hello", ("10.50.0.1", 7777))
        assert listening.recv(16) == b"hello"
    for prepared, _, pod in shares:
        driver.unprepare(prepared)
        assert pod.names() == {"lo"}
    wait_for_state(networks.node, before)
    driver.assert_clean()


def test_a_new_sandbox_of_a_pod_gets_the_same_address(driver: DriverHarness, networks: PrivateNetworks) -> None:
    before = networks.node.state()
    prepared, made, pod = share(driver, networks, 1)
    (first,) = json.loads(pod.ip("-j link show net1"))
    networks.end_pod("pod1")  # the macvlan ends with it
    again = networks.add_pod("pod1")

    def started() -> bool:
        """As the SDK does it: until the kernel, which ends a namespace a little later, has the address for this one."""
        try:
            nic_driver(driver).dra_run_pod_sandbox(made, driver.node.node)
        except NetworkError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        return True

    wait(started)
    (second,) = json.loads(again.ip("-j link show net1"))
    assert second["address"] == first["address"]
    stop_sandbox(driver, made)
    wait_for_state(networks.node, before)
    driver.unprepare(prepared)
    driver.assert_clean()


def test_a_share_that_cannot_be_attached_leaves_nothing(driver: DriverHarness, networks: PrivateNetworks) -> None:
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    pod.ip("link add net1 type veth peer name other")
    driver.prepare(claim(SHARED, config=configured("10.50.0.1/24")))
    with pytest.raises(RetriableError, match="cannot be called net1 in the pod"):
        run_sandbox(driver, "pod1")
    wait_for_state(networks.node, before)


def test_a_parent_that_no_longer_exists_is_reported(driver: DriverHarness, networks: PrivateNetworks) -> None:
    networks.add_pod("pod1")
    driver.prepare(claim(SHARED))
    networks.node.ip("link del nic0")
    with pytest.raises(RetriableError, match="interface nic0, which is shared, is not on the node"):
        run_sandbox(driver, "pod1")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (NicConfig(interface=InterfaceConfig(mtu=4001)), r"interface\.mtu 4001 exceeds 4000, the MTU of nic0"),
        (configured("10.9.0.1/24"), r"10\.9\.0\.1 of interface\.addresses is used"),
        (NicConfig(ethtool=EthtoolConfig(features={"gro": False})), "ethtool cannot be given"),
        (NicConfig(interface=InterfaceConfig(dhcp=True)), r"interface\.dhcp cannot be given"),
        (NicConfig(driver="vfio-pci"), "driver is vfio-pci, but it is no PCI function"),
        (NicConfig(vf=VfConfig(max_tx_rate=7)), "vf is for virtual functions"),
        (
            NicConfig(shared_mode="ipvlan", interface=InterfaceConfig(hardware_addr="02:00:00:00:00:01")),
            r"interface\.hardwareAddr cannot be given: an ipvlan has that of nic0",
        ),
    ],
)
def test_what_a_share_cannot_have_is_refused(driver: DriverHarness, config: NicConfig, message: str) -> None:
    with pytest.raises(PermanentError, match=message):
        driver.prepare(claim(SHARED, config=config))


def test_an_address_of_another_share_is_refused(driver: DriverHarness) -> None:
    driver.prepare(claim(SHARED, config=configured("10.50.0.1/24")))
    with pytest.raises(PermanentError, match=r"address 10\.50\.0\.1 of interface\.addresses is used by device nic0"):
        driver.prepare(claim(SHARED, config=configured("10.50.0.1/24")))


IPVLAN = NicConfig(shared_mode="ipvlan", interface=InterfaceConfig(name="net1", addresses=("10.50.0.7/24",)))


def test_a_claim_may_ask_for_an_ipvlan_and_the_node_is_then_as_before(
    ipvlan_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    before = networks.node.state()
    kind = "ipvlan" if has_ipvlan(networks) else "macvlan"
    pod = networks.add_pod("pod1")
    prepared = ipvlan_driver.prepare(claim(SHARED, config=IPVLAN))
    made = run_sandbox(ipvlan_driver, "pod1")
    (link,) = json.loads(pod.ip("-d -j link show net1"))
    assert link["linkinfo"]["info_kind"] == kind
    assert "10.50.0.7/24" in pod.ip("addr show net1")
    stop_sandbox(ipvlan_driver, made)
    assert pod.names() == {"lo"}
    ipvlan_driver.unprepare(prepared)
    wait_for_state(networks.node, before)
    ipvlan_driver.assert_clean()


def test_an_interface_has_one_kind_of_shares_at_a_time(driver: DriverHarness) -> None:
    prepared = driver.prepare(claim(SHARED, config=configured("10.50.0.1/24")))
    with pytest.raises(RetriableError, match=r"sharedMode ipvlan is not possible now, .* has a macvlan on nic0"):
        driver.prepare(claim(SHARED, config=IPVLAN))
    driver.unprepare(prepared)
    driver.unprepare(driver.prepare(claim(SHARED, config=IPVLAN)))


def test_a_shared_mode_is_refused_for_an_interface_that_is_not_shared(driver: DriverHarness) -> None:
    with pytest.raises(PermanentError, match=r"device nic1 .*: sharedMode is for shared interfaces, and it is none"):
        driver.prepare(claim(request("nic"), config=NicConfig(shared_mode="macvlan")))


def test_one_claim_may_have_two_shares(driver: DriverHarness, networks: PrivateNetworks) -> None:
    pod = networks.add_pod("pod1")
    prepared = driver.prepare(claim(request("a"), request("b")))
    assert prepared.names == ["nic1", "nic0"], "what is shared comes last"
    two = driver.prepare(claim({**SHARED, "name": "a"}, {**SHARED, "name": "b"}))
    assert two.names == ["nic0", "nic0"]
    driver.unprepare(prepared)
    run_sandbox(driver, "pod1")
    assert pod.names() == {"lo", "net1", "net2"}
    driver.unprepare(two)
    assert pod.names() == {"lo"}
    driver.assert_clean()
