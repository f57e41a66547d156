"""Interfaces of the real kernel go into pods and come back as they were, and VRFs of pods with them."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import pytest
from dra_driver_nic import NicConfig
from dra_driver_nic.config import InterfaceConfig, RouteConfig, VrfConfig
from dra_driver_nic.network.links import Link, NetworkError, Vrf
from dra_driver_nic.prepare.attach import check_vrf, enter_vrf
from dra_driver_nic.prepare.detach import leave_vrf
from dra_driver_nic.testing import EVERY_FIELD, PrivateNetworks, run_sandbox, stop_sandbox, wait_for_state

from dra_sdk import RetriableError
from dra_sdk.testing import DriverHarness, claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
RED = Vrf(name="red", table=100)
ONE = request("nic", where='device.attributes["dra.net"].ifName == "nic0"')
BOTH = request("nics", count=2)


def test_an_interface_is_configured_in_the_pod_and_comes_back_as_it_was(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    networks.node.ip("link set nic0 alias uplink-to-lab", "link property add dev nic0 altname enp1s0")
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=EVERY_FIELD))
    wait_for_state(networks.node, before)
    made = run_sandbox(nic_driver, "pod1")
    assert "nic0" not in networks.node.names()
    (link,) = json.loads(pod.ip("-d -j addr show net1"))
    assert (link["mtu"], link["address"], link["ifalias"]) == (1400, "02:00:00:00:00:77", "uplink-to-lab")
    local = [(ip["local"], ip["prefixlen"]) for ip in link["addr_info"] if ip["scope"] == "global"]
    assert local == [("10.1.1.5", 24), ("fd07::5", 64)]
    routes = pod.ip("route")
    assert "10.2.0.0/16 via 10.3.0.1 dev net1" in routes
    assert "10.3.0.0/24 dev net1 proto static scope link" in routes
    assert "fd08::/64 via fd07::1 dev net1 proto static src fd07::5" in pod.ip("-6 route")
    assert "50:\tfrom 10.1.1.0/24 lookup 99" in pod.ip("rule")
    assert "10.1.1.9 dev net1 lladdr 02:00:00:00:00:99 PERMANENT" in pod.ip("neigh")
    sysctls = pod.state()["sysctls"]
    assert sysctls["/proc/sys/net/ipv4/conf/net1/arp_ignore"] == "1\n"
    assert sysctls["/proc/sys/net/ipv4/conf/net1/arp_announce"] == "2\n"
    assert sysctls["/proc/sys/net/ipv4/conf/net1/rp_filter"] == "2\n"
    stop_sandbox(nic_driver, made)
    wait_for_state(networks.node, before)
    assert pod.names() == {"lo"}
    stop_sandbox(nic_driver, made)
    nic_driver.unprepare(prepared)
    wait_for_state(networks.node, before)
    nic_driver.assert_clean()


def test_all_interfaces_of_a_pod_are_moved_or_none(nic_driver: DriverHarness, networks: PrivateNetworks) -> None:
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    nic_driver.prepare(claim(BOTH))
    pod.ip("link add nic1 type veth peer name other")
    there = pod.state()
    with pytest.raises(RetriableError, match=r"\(interface nic1\) cannot be called nic1 in the pod: the pod has"):
        run_sandbox(nic_driver, "pod1")
    wait_for_state(networks.node, before)
    wait_for_state(pod, there)
    made = (networks.add_pod("pod2"), run_sandbox(nic_driver, "pod2"))
    assert {"nic0", "nic1"} <= made[0].names()
    stop_sandbox(nic_driver, made[1])
    wait_for_state(networks.node, before)


def test_a_configuration_that_the_kernel_refuses_is_undone(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    config = NicConfig(routes=(RouteConfig(destination="10.2.0.0/16", scope=253, source="10.200.0.1"),))
    nic_driver.prepare(claim(BOTH, config=config))
    with pytest.raises(RetriableError, match=r"refused to add route 10\.2\.0\.0/16 through interface"):
        run_sandbox(nic_driver, "pod1")
    wait_for_state(networks.node, before)
    assert pod.names() == {"lo"}


def test_an_address_that_the_pod_has_is_refused_before_anything_moves(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    pod.ip("link add eth0 type veth peer name other", "addr add 10.1.1.5/16 dev eth0")
    nic_driver.prepare(claim(ONE, config=NicConfig(interface=InterfaceConfig(addresses=("10.1.1.5/24",)), routes=())))
    with pytest.raises(RetriableError, match=r"cannot get address 10\.1\.1\.5 in the pod: interface eth0 of the pod"):
        run_sandbox(nic_driver, "pod1")
    wait_for_state(networks.node, before)
    assert pod.names() == {"lo", "eth0", "other"}


@pytest.mark.parametrize("change", ["link set nic0 down name taken0", "link del nic0"])
def test_an_interface_that_another_tool_took_after_prepare_is_reported(
    nic_driver: DriverHarness, networks: PrivateNetworks, change: str
) -> None:
    pod = networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(BOTH))
    networks.node.ip(change)
    before = networks.node.state()
    with pytest.raises(RetriableError, match="is not on the node; something else has taken, renamed or removed it"):
        run_sandbox(nic_driver, "pod1")
    wait_for_state(networks.node, before)
    assert pod.names() == {"lo"}
    nic_driver.unprepare(prepared)
    wait_for_state(networks.node, before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("link add br0 type bridge; link set nic0 master br0", "belongs to interface br0 of the node now"),
        ("link add link nic0 name upper type macvlan mode bridge", "carries interface upper of the node now"),
    ],
)
def test_an_interface_that_another_tool_uses_after_prepare_is_not_moved(
    nic_driver: DriverHarness, networks: PrivateNetworks, change: str, message: str
) -> None:
    pod = networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE))
    networks.node.ip(*change.split("; "))
    before = networks.node.state()
    with pytest.raises(RetriableError, match=message):
        run_sandbox(nic_driver, "pod1")
    wait_for_state(networks.node, before)
    assert pod.names() == {"lo"}
    nic_driver.unprepare(prepared)
    wait_for_state(networks.node, before)


def test_an_mtu_that_the_parent_no_longer_carries_is_undone(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    networks.node.ip("link add link wire1 name mac0 type macvlan mode bridge", "link set wire1 mtu 2000")
    wanted = request(where='device.attributes["dra.net"].type == "macvlan"')
    nic_driver.prepare(claim(wanted, config=NicConfig(interface=InterfaceConfig(mtu=1900))))
    networks.node.ip("link set wire1 mtu 1500")
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    with pytest.raises(RetriableError, match="refused to set mtu 1900 of interface"):
        run_sandbox(nic_driver, "pod1")
    wait_for_state(networks.node, before)
    assert pod.names() == {"lo"}


def test_an_interface_returns_with_another_index_if_its_own_is_taken(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE))
    (index,) = [link["ifindex"] for link in json.loads(networks.node.ip("-j link show nic0"))]
    run_sandbox(nic_driver, "pod1")
    networks.node.ip(f"link add other0 index {index} type veth peer name other1")
    nic_driver.unprepare(prepared)
    assert "nic0" in networks.node.names()
    nic_driver.assert_clean()


class PodNetwork:
    """The interfaces of a pod, in memory; of a VRF, what a kernel does for it."""

    def __init__(self, *names: str) -> None:
        self._links = {number: Link(index=number, name=name) for number, name in enumerate(names, start=1)}

    def links(self) -> list[Link]:
        return [*self._links.values()]

    def link(self, name: str) -> Link:
        return next(link for link in self._links.values() if link.name == name)

    def find(self, name: str) -> Link | None:
        return next((link for link in self._links.values() if name in {link.name, *link.altnames}), None)

    def add_vrf(self, vrf: Vrf) -> None:
        index = max(self._links) + 1
        self._links[index] = Link(index=index, name=vrf.name, kind="vrf", table=vrf.table)

    def add_altname(self, link: int, name: str) -> None:
        self._links[link] = replace(self._links[link], altnames=(*self._links[link].altnames, name))

    def set_master(self, link: int, master: int) -> None:
        self._links[link] = replace(self._links[link], master=master)

    def remove_link(self, link: int) -> None:
        del self._links[link]


def test_interfaces_share_a_vrf_that_goes_with_the_last_of_them() -> None:
    network = PodNetwork("net1", "net2")
    for name in ("net1", "net2"):
        enter_vrf(network, network.link(name).index, RED)
    assert [link.name for link in network.links()] == ["net1", "net2", "red"]
    assert {network.link(name).master for name in ("net1", "net2")} == {network.link("red").index}
    leave_vrf(network, network.link("net1"), RED)
    assert "red" in {link.name for link in network.links()}
    leave_vrf(network, network.link("net2"), RED)
    assert [(link.name, link.master) for link in network.links()] == [("net1", 0), ("net2", 0)]


def test_a_vrf_that_the_pod_has_already_stays() -> None:
    network = PodNetwork("net1")
    network.add_vrf(RED)
    enter_vrf(network, network.link("net1").index, RED)
    leave_vrf(network, network.link("net1"), RED)
    assert [link.name for link in network.links()] == ["net1", "red"]


@pytest.mark.parametrize(
    ("link", "message"),
    [
        (Link(index=5, name="red", kind="vrf", table=7), "another VRF of table 7 of this name"),
        (Link(index=5, name="red", kind="veth"), "another interface of kind veth of this name"),
        (Link(index=5, name="eth0", kind="veth", altnames=("red",)), "another interface of kind veth"),
    ],
)
def test_a_name_that_something_else_has_is_refused(link: Link, message: str) -> None:
    with pytest.raises(NetworkError, match=f"VRF red of table 100 cannot be made: the pod has {message}"):
        check_vrf(RED, [link])


def has_vrf(networks: PrivateNetworks) -> bool:
    with contextlib.suppress(AssertionError):
        networks.node.ip("link add probe0 type vrf table 9", "link del probe0")
        return True
    return False


def test_the_kernel_makes_and_removes_a_vrf(nic_driver: DriverHarness, networks: PrivateNetworks) -> None:
    if not has_vrf(networks):
        pytest.skip("this kernel has no VRF")
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    routes = (RouteConfig(destination="0.0.0.0/0", gateway="10.9.0.2"),)
    interface = InterfaceConfig(vrf=VrfConfig(name="red", table=100))
    prepared = nic_driver.prepare(claim(ONE, config=NicConfig(interface=interface, routes=routes)))
    made = run_sandbox(nic_driver, "pod1")
    (link,) = json.loads(pod.ip("-d -j link show nic0"))
    assert link["master"] == "red"
    assert "default via 10.9.0.2 dev nic0" in pod.ip("route show table 100")
    assert "10.9.0.0/24 dev nic0 proto kernel" in pod.ip("route show table 100")
    stop_sandbox(nic_driver, made)
    assert pod.names() == {"lo"}
    nic_driver.unprepare(prepared)
    wait_for_state(networks.node, before)
