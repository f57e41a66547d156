"""Interfaces of the real kernel go into pods and come back; what is refused, and what is undone."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from dra_driver_nic import NicConfig
from dra_driver_nic.config import InterfaceConfig, RouteConfig
from dra_driver_nic.testing import EVERY_FIELD, PrivateNetworks, run_sandbox, sandbox, stop_sandbox, wait_for_state

from dra_sdk import AllocatedDevice, Claim, ConfigError, PermanentError, RetriableError
from dra_sdk.testing import DriverHarness, claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
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
    local = [(each["local"], each["prefixlen"]) for each in link["addr_info"] if each["scope"] == "global"]
    assert local == [("10.1.1.5", 24), ("fd07::5", 64)]
    routes = pod.ip("route")
    assert "10.2.0.0/16 via 10.3.0.1 dev net1" in routes
    assert "10.3.0.0/24 dev net1 proto static scope link" in routes
    assert "fd08::/64 via fd07::1 dev net1 proto static src fd07::5" in pod.ip("-6 route")
    assert "50:\tfrom 10.1.1.0/24 lookup 99" in pod.ip("rule")
    assert "10.1.1.9 dev net1 lladdr 02:00:00:00:00:99 PERMANENT" in pod.ip("neigh")
    found = pod.state()["sysctls"]
    assert found["/proc/sys/net/ipv4/conf/net1/arp_ignore"] == "1\n"
    assert found["/proc/sys/net/ipv4/conf/net1/arp_announce"] == "2\n"
    assert found["/proc/sys/net/ipv4/conf/net1/rp_filter"] == "2\n"
    stop_sandbox(nic_driver, made)
    wait_for_state(networks.node, before)
    assert pod.names() == {"lo"}
    stop_sandbox(nic_driver, made)
    nic_driver.unprepare(prepared)
    wait_for_state(networks.node, before)
    nic_driver.assert_clean()


def test_without_a_configuration_the_pod_gets_what_the_interface_has_on_the_node(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    pod = networks.add_pod("pod1")
    nic_driver.prepare(claim(ONE))
    run_sandbox(nic_driver, "pod1")
    (link,) = json.loads(pod.ip("-j addr show nic0"))
    local = [each["local"] for each in link["addr_info"] if each["scope"] == "global"]
    assert (link["mtu"], local) == (4000, ["10.9.0.1", "fd00::1"])
    assert "10.77.0.0/24 via 10.9.0.2 dev nic0" in pod.ip("route")
    assert "10.9.0.9 dev nic0 lladdr 02:00:00:00:00:09 PERMANENT" in pod.ip("neigh")


def test_two_pods_reach_each_other(nic_driver: DriverHarness, networks: PrivateNetworks) -> None:
    """The other ends of their veths are in a bridge of the node."""
    networks.node.ip(
        "link add bridge0 type bridge",
        "link set bridge0 up",
        "link set wire0 master bridge0",
        "link set wire1 master bridge0",
    )
    pods = [networks.add_pod(f"pod{number}") for number in (0, 1)]
    for number in (0, 1):
        config = NicConfig(interface=InterfaceConfig(name="net1", addresses=(f"10.5.0.{number + 1}/24",)), routes=())
        where = f'device.attributes["dra.net"].ifName == "nic{number}"'
        held = nic_driver.prepare(claim(request("nic", where=where), config=config))
        mine = [each for each in nic_driver.held if each.uid == held.ref.uid]
        made = replace(sandbox(nic_driver, f"pod{number}", f"uid-{number}"), claims=mine)
        nic_driver.plugin.dra_run_pod_sandbox(made, nic_driver.node.node)
    listen = partial(socket.create_server, ("10.5.0.1", 7000))
    connect = partial(socket.create_connection, ("10.5.0.1", 7000), 30)
    with pods[0].enter(listen) as server, pods[1].enter(connect) as client:
        server.settimeout(30)
        server.accept()[0].close()
        assert client.getpeername() == ("10.5.0.1", 7000)


def test_a_macvlan_goes_to_a_pod_and_ends_with_it(nic_driver: DriverHarness, networks: PrivateNetworks) -> None:
    networks.node.ip("link add link wire1 name mac0 type macvlan mode bridge", "link set mac0 up")
    pod = networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(request(where='device.attributes["dra.net"].type == "macvlan"')))
    run_sandbox(nic_driver, "pod1")
    assert "mac0" in pod.names()
    networks.end_pod("pod1")
    nic_driver.unprepare(prepared)
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
    config = NicConfig(routes=(RouteConfig(destination="10.2.0.0/16", gateway="10.200.0.1"),))
    nic_driver.prepare(claim(BOTH, config=config))
    with pytest.raises(RetriableError, match=r"refused to add route 10\.2\.0\.0/16 through interface"):
        run_sandbox(nic_driver, "pod1")
    wait_for_state(networks.node, before)
    assert pod.names() == {"lo"}


@pytest.mark.parametrize("uid", ["uid-1", "uid-2"])
def test_an_interface_is_in_one_pod_but_a_new_sandbox_of_that_pod_gets_it(
    nic_driver: DriverHarness, networks: PrivateNetworks, uid: str
) -> None:
    first, second = networks.add_pod("pod1"), networks.add_pod("pod2")
    nic_driver.prepare(claim(ONE))
    made = run_sandbox(nic_driver, "pod1")
    if uid == "uid-2":
        with pytest.raises(RetriableError, match=r"is in pod default/name-uid-1; it can be in one pod only"):
            run_sandbox(nic_driver, "pod2", uid)
        return
    run_sandbox(nic_driver, "pod2", uid)
    assert "nic0" in second.names()
    stop_sandbox(nic_driver, made)
    assert "nic0" in second.names(), "the late stop of the first sandbox changes nothing"
    assert "nic0" not in first.names()


def test_a_pod_in_the_nodes_network_is_refused(nic_driver: DriverHarness, networks: PrivateNetworks) -> None:
    nic_driver.prepare(claim(ONE))
    made = replace(sandbox(nic_driver, "pod1"), network_namespace="")
    with pytest.raises(PermanentError, match=r"uses the network of its node \(hostNetwork\)"):
        nic_driver.plugin.dra_run_pod_sandbox(made, nic_driver.node.node)


def test_a_name_that_the_node_has_given_away_is_told(nic_driver: DriverHarness, networks: PrivateNetworks) -> None:
    before = networks.node.state()
    networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE))
    run_sandbox(nic_driver, "pod1")
    networks.node.ip("link add nic0 type veth peer name intruder")
    with pytest.raises(RetriableError, match="the node has another interface nic0; rename it"):
        nic_driver.unprepare(prepared)
    networks.node.ip("link del nic0")
    nic_driver.unprepare(prepared)
    wait_for_state(networks.node, before)


def test_an_interface_returns_with_another_index_if_its_own_is_taken(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE))
    (index,) = [each["ifindex"] for each in json.loads(networks.node.ip("-j link show nic0"))]
    run_sandbox(nic_driver, "pod1")
    networks.node.ip(f"link add other0 index {index} type veth peer name other1")
    nic_driver.unprepare(prepared)
    assert "nic0" in networks.node.names()
    nic_driver.assert_clean()


def test_a_device_is_published_unchanged_while_a_pod_has_it(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    before = {name: dict(each.attributes) for name, each in nic_driver.devices.items()}
    networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=EVERY_FIELD))
    made = run_sandbox(nic_driver, "pod1")
    for _ in range(2):
        nic_driver.discover()
        assert {name: dict(each.attributes) for name, each in nic_driver.devices.items()} == before
        nic_driver.restart()
    stop_sandbox(nic_driver, made)
    nic_driver.unprepare(prepared)
    nic_driver.discover()
    assert {name: dict(each.attributes) for name, each in nic_driver.devices.items()} == before


# -- what prepare refuses


@pytest.mark.parametrize(
    ("interface", "told"),
    [
        ({"mtu": 65535}, ""),
        ({"mtu": 1000, "addresses": ["fd07::5/64"]}, r"interface\.mtu 1000 must be at least 1280 for IPv6"),
        ({"mtu": 1000}, r"interface\.mtu 1000 must be at least 1280 for IPv6"),
        ({"mtu": 60}, r"mtu.*68"),
        ({"name": "a" * 16}, r"interface\.name.*at most 15"),
        ({"addresses": ["10.1.1.5"]}, r"interface\.addresses.*prefix length"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_with_its_field(
    nic_driver: DriverHarness, interface: dict[str, Any], told: str
) -> None:
    parameters = {"apiVersion": "dra.net/v1alpha1", "kind": "NicConfig", "interface": interface}
    asked = claim(ONE, config=parameters)
    if told:
        with pytest.raises((PermanentError, ConfigError), match=told):
            nic_driver.prepare(asked)
    else:
        nic_driver.prepare(asked)


def test_a_name_or_address_that_is_used_already_is_refused(nic_driver: DriverHarness) -> None:
    for interface, told in (
        (InterfaceConfig(name="net1"), "nic0 and nic1 would both be interface net1 in the pod"),
        (
            InterfaceConfig(addresses=("10.1.1.5/24",)),
            r"10\.1\.1\.5 of interface\.addresses is used by device nic0 of the",
        ),
    ):
        asked = claim(BOTH, config=NicConfig(interface=interface))
        with pytest.raises(PermanentError, match=told):
            nic_driver.prepare(asked)
        nic_driver.unprepare(asked)
    addressed = NicConfig(interface=InterfaceConfig(addresses=("10.1.1.5/24",)))
    nic_driver.prepare(claim(ONE, config=addressed))
    with pytest.raises(PermanentError, match=r"device nic1: address 10\.1\.1\.5 .* is used by device nic0"):
        nic_driver.prepare(claim(config=addressed))


def test_an_mtu_that_the_parent_does_not_carry_is_refused(nic_driver: DriverHarness, networks: PrivateNetworks) -> None:
    networks.node.ip("link add link wire1 name mac0 type macvlan mode bridge")
    before = networks.node.state()
    asked = claim(
        request(where='device.attributes["dra.net"].type == "macvlan"'),
        config=NicConfig(interface=InterfaceConfig(mtu=1600)),
    )
    with pytest.raises(PermanentError, match=r"interface\.mtu 1600 exceeds 1500, the MTU of wire1, on which it stands"):
        nic_driver.prepare(asked)
    assert networks.node.state() == before


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


def test_an_address_of_another_interface_of_the_node_is_refused(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    before = networks.node.state()
    asked = claim(ONE, config=NicConfig(interface=InterfaceConfig(addresses=("10.9.1.1/24",))))
    with pytest.raises(PermanentError, match=r"10\.9\.1\.1 of interface\.addresses is used by interface nic1 of the"):
        nic_driver.prepare(asked)
    assert networks.node.state() == before


def test_an_address_that_the_pod_has_already_is_refused_before_anything_moves(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    pod.ip("link add eth0 type veth peer name other", "addr add 10.1.1.5/16 dev eth0")
    nic_driver.prepare(claim(ONE, config=NicConfig(interface=InterfaceConfig(addresses=("10.1.1.5/24",)))))
    with pytest.raises(RetriableError, match=r"cannot get address 10\.1\.1\.5 in the pod: interface eth0 of the pod"):
        run_sandbox(nic_driver, "pod1")
    wait_for_state(networks.node, before)
    assert pod.names() == {"lo", "eth0", "other"}


@pytest.mark.parametrize("change", ["link set nic0 down name taken0", "link del nic0"])
def test_an_interface_that_another_tool_took_after_prepare_is_told(
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


def test_a_sysctl_that_the_kernel_does_not_have_is_refused(nic_driver: DriverHarness) -> None:
    asked = claim(ONE, config=NicConfig(interface=InterfaceConfig(sysctls={"ipv4.conf.arp_magic": "1"})))
    with pytest.raises(PermanentError, match=r"interface\.sysctls: the kernel has no sysctl ipv4\.conf\.arp_magic"):
        nic_driver.prepare(asked)


def test_an_interface_of_a_route_with_several_hops_is_refused(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    networks.node.ip("route add 10.88.0.0/16 nexthop via 10.9.0.2 nexthop via 10.9.1.2")
    with pytest.raises(PermanentError, match=r"route 10\.88\.0\.0/16 goes through it and other interfaces"):
        nic_driver.prepare(claim(ONE))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("route add default via 10.9.0.2", "interface nic0 is an uplink of the node: a default route goes through it"),
        ("link add link nic0 name vlan7 type macvlan", "interface nic0 carries interface vlan7"),
        ("link del nic0", "its interface is not on the node: something else has taken, renamed or removed it"),
    ],
)
def test_an_interface_that_was_taken_since_discovery_is_refused(
    nic_driver: DriverHarness, networks: PrivateNetworks, change: str, told: str
) -> None:
    device = AllocatedDevice("nic", "node-1", "nic0", config=NicConfig())
    asked = Claim("default", "claim", "uid", nic_driver.node.node, [device])
    networks.node.ip(change)
    with pytest.raises(RetriableError, match=f"device nic0: {told}"):
        next(iter(nic_driver.plugin.dra_prepare(asked)))
