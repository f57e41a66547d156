"""Addresses by DHCP: a server on the other end of a veth grants, extends, refuses and takes back leases."""

from __future__ import annotations

import json
import struct
from functools import partial
from typing import Any

import pytest
from dra_driver_nic import NicConfig, NicDriver, NicSettings
from dra_driver_nic.config import InterfaceConfig, RouteConfig
from dra_driver_nic.network.dhcp import DISCOVER, RELEASE, REQUEST
from dra_driver_nic.testing import PrivateNamespace, PrivateNetworks, run_sandbox, stop_sandbox, wait_for_state

from dra_sdk import RetriableError
from dra_sdk.testing import DriverHarness, FakeNode, claim, request
from dra_sdk.testing.crashes import assert_survives_crashes
from dra_sdk.testing.waiting import wait

pytest_plugins = ["dra_sdk.testing.plugin"]
ONE = request("nic", where='device.attributes["dra.net"].ifName == "nic0"')
BY_DHCP = NicConfig(interface=InterfaceConfig(name="net1", dhcp=True))
MAC = "02:00:00:00:00:55"
ROUTES = bytes([16, 10, 61, 10, 60, 0, 1]) + bytes([0, 10, 60, 0, 1]) + bytes([24, 10, 62, 0, 0, 0, 0, 0])


def addresses_in(namespace: PrivateNamespace, name: str) -> list[dict[str, Any]]:
    (link,) = json.loads(namespace.ip(f"-j addr show {name}"))
    return [address for address in link["addr_info"] if address["family"] == "inet"]


def address_in(namespace: PrivateNamespace, name: str) -> dict[str, Any]:
    (address,) = addresses_in(namespace, name)
    return address


def test_a_pod_gets_the_address_of_a_lease_and_the_server_gets_it_back(
    nic_driver: DriverHarness, networks: PrivateNetworks, dhcp_server: Any
) -> None:
    dhcp_server.options[121] = ROUTES
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=BY_DHCP))
    wait_for_state(networks.node, before)
    (status,) = nic_driver.cluster.claims[prepared.ref.uid]["status"]["devices"]
    assert status["networkData"]["ips"] == ["10.60.0.50/24"]
    made = run_sandbox(nic_driver, "pod1")
    address = address_in(pod, "net1")
    assert (address["local"], address["prefixlen"]) == ("10.60.0.50", 24)
    assert 500 < address["valid_life_time"] <= 600
    routes = pod.ip("route")
    assert "10.61.0.0/16 via 10.60.0.1 dev net1 proto dhcp" in routes
    assert "10.62.0.0/24 dev net1 proto dhcp scope link" in routes
    assert "default" not in routes, "the pod has a default route already"
    stop_sandbox(nic_driver, made)
    nic_driver.unprepare(prepared)
    wait(lambda: dhcp_server.kinds() == [DISCOVER, REQUEST, RELEASE])
    assert dhcp_server.received[-1][1] == "10.60.0.50"
    wait_for_state(networks.node, before)
    nic_driver.assert_clean()


def test_a_lease_is_renewed_in_the_pod(nic_driver: DriverHarness, networks: PrivateNetworks, dhcp_server: Any) -> None:
    dhcp_server.options |= {58: struct.pack("!I", 1)}
    pod = networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=BY_DHCP))
    made = run_sandbox(nic_driver, "pod1")
    dhcp_server.options |= {51: struct.pack("!I", 9000), 58: struct.pack("!I", 8000), 59: struct.pack("!I", 8500)}
    nic_driver.restart()
    with nic_driver.watching():
        wait(lambda: address_in(pod, "net1")["valid_life_time"] > 600)
    assert (REQUEST, "10.60.0.50", *dhcp_server.received[0][2:]) in dhcp_server.received
    stop_sandbox(nic_driver, made)
    nic_driver.unprepare(prepared)


def test_a_lease_that_the_server_refuses_to_renew_is_replaced(
    nic_driver: DriverHarness, networks: PrivateNetworks, dhcp_server: Any
) -> None:
    dhcp_server.options |= {58: struct.pack("!I", 1), 121: ROUTES}
    pod = networks.add_pod("pod1")
    nic_driver.prepare(claim(ONE, config=BY_DHCP))
    run_sandbox(nic_driver, "pod1")
    dhcp_server.refuses_renewal = True
    dhcp_server.options |= {58: struct.pack("!I", 300)}
    dhcp_server.address = "10.60.0.51"
    with nic_driver.watching():
        wait(lambda: [address["local"] for address in addresses_in(pod, "net1")] == ["10.60.0.51"])
    assert "10.61.0.0/16 via 10.60.0.1 dev net1" in pod.ip("route")


def test_an_interface_that_was_switched_off_is_switched_off_again(
    nic_driver: DriverHarness, networks: PrivateNetworks, dhcp_server: Any
) -> None:
    networks.node.ip("link set nic0 down")
    before = networks.node.state()
    prepared = nic_driver.prepare(claim(ONE, config=BY_DHCP))
    assert '"UP"' in networks.node.ip("-j link show nic0")
    nic_driver.unprepare(prepared)
    wait_for_state(networks.node, before)
    wait(lambda: dhcp_server.kinds()[-1] == RELEASE)


@pytest.mark.timeout(300)
def test_a_kill_at_every_write_leaves_no_interface_switched_on(
    nic_driver: DriverHarness, networks: PrivateNetworks, dhcp_server: Any
) -> None:
    networks.node.ip("link set nic0 down")
    before = networks.node.state()
    assert assert_survives_crashes(nic_driver, claim(ONE, config=BY_DHCP), lines=False) > 10
    assert RELEASE in dhcp_server.kinds()
    wait_for_state(networks.node, before)


def test_a_lease_that_is_over_is_not_given_to_a_pod(
    nic_driver: DriverHarness, networks: PrivateNetworks, dhcp_server: Any
) -> None:
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=BY_DHCP))
    (path,) = nic_driver.node.root.rglob(f"devices/{prepared.names[0]}/record.json")
    record = json.loads(path.read_text())
    record["lease"]["seconds"] = 0
    path.write_text(json.dumps(record))
    with pytest.raises(RetriableError, match=r"its lease of 10\.60\.0\.50 by DHCP server 10\.60\.0\.1 is over"):
        run_sandbox(nic_driver, "pod1")
    wait_for_state(networks.node, before)
    with nic_driver.watching():
        wait(lambda: json.loads(path.read_text())["lease"]["seconds"] == 600)
    run_sandbox(nic_driver, "pod1")
    assert address_in(pod, "net1")["local"] == "10.60.0.50"


def test_without_a_server_the_claim_is_refused_and_the_node_as_before(
    dra_node: FakeNode, dra_driver: Any, networks: PrivateNetworks
) -> None:
    settings = NicSettings(software=("veth",), protect=("wire*",), dhcp_seconds=0.2)
    driver = dra_driver(partial(NicDriver, effects=dra_node.effects, open_namespace=networks.open), settings=settings)
    networks.node.ip("link set nic0 down")
    before = networks.node.state()
    asked = claim(ONE, config=BY_DHCP)
    message = (
        r"device nic0 \(interface nic0\): there is no DHCP lease for .*: no server answers \(interface\.dhcp, 0\.2 s\)"
    )
    with pytest.raises(RetriableError, match=message):
        driver.prepare(asked)
    driver.unprepare(asked)
    wait_for_state(networks.node, before)
    driver.assert_clean()


def test_address_and_routes_of_the_configuration_replace_the_leases(
    nic_driver: DriverHarness, networks: PrivateNetworks, dhcp_server: Any
) -> None:
    dhcp_server.options[121] = ROUTES
    pod = networks.add_pod("pod1")
    interface = InterfaceConfig(dhcp=True, hardware_addr=MAC)
    routes = (RouteConfig(destination="10.70.0.0/16", gateway="10.60.0.9"),)
    nic_driver.prepare(claim(ONE, config=NicConfig(interface=interface, routes=routes)))
    run_sandbox(nic_driver, "pod1")
    assert dhcp_server.received[0] == (DISCOVER, "0.0.0.0", MAC)
    assert "10.70.0.0/16 via 10.60.0.9 dev nic0" in pod.ip("route")
    assert "10.61.0.0/16" not in pod.ip("route")
