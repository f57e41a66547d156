"""How the pod gets an interface, and which configurations are refused before anything changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dra_driver_nic import NicConfig
from dra_driver_nic.config import InterfaceConfig, RouteConfig, VrfConfig
from dra_driver_nic.testing import PrivateNetworks, run_sandbox

from dra_sdk import ConfigError, PermanentError
from dra_sdk.testing import DriverHarness, claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
ONE = request("nic", where='device.attributes["dra.net"].ifName == "nic0"')


def test_without_configuration_the_pod_gets_what_the_interface_has(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    pod = networks.add_pod("pod1")
    nic_driver.prepare(claim(ONE))
    run_sandbox(nic_driver, "pod1")
    (link,) = json.loads(pod.ip("-j addr show nic0"))
    local = [ip["local"] for ip in link["addr_info"] if ip["scope"] == "global"]
    assert (link["mtu"], local) == (4000, ["10.9.0.1", "fd00::1"])
    assert "10.77.0.0/24 via 10.9.0.2 dev nic0" in pod.ip("route")
    assert "10.9.0.9 dev nic0 lladdr 02:00:00:00:00:09 PERMANENT" in pod.ip("neigh")


@pytest.mark.parametrize(
    ("interface", "message"),
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
    nic_driver: DriverHarness, interface: dict[str, Any], message: str
) -> None:
    parameters = {"apiVersion": "dra.net/v1alpha1", "kind": "NicConfig", "interface": interface}
    asked = claim(ONE, config=parameters)
    if message:
        with pytest.raises((PermanentError, ConfigError), match=message):
            nic_driver.prepare(asked)
    else:
        nic_driver.prepare(asked)


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


def test_an_address_of_another_interface_of_the_node_is_refused(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    before = networks.node.state()
    asked = claim(ONE, config=NicConfig(interface=InterfaceConfig(addresses=("10.9.1.1/24",))))
    with pytest.raises(PermanentError, match=r"10\.9\.1\.1 of interface\.addresses is used by interface nic1 of the"):
        nic_driver.prepare(asked)
    assert networks.node.state() == before


GATEWAY = r"routes: gateway 10\.{} of .* is in no network of its addresses \({}\); give routes that fit, or \[\]"


@pytest.mark.parametrize(
    ("addresses", "routes", "message"),
    [
        (
            ["10.1.1.5/24"],
            None,
            r"gateway 10\.9\.0\.2 of 10\.77\.0\.0/24, which it has on the node and keeps without routes",
        ),
        (["10.9.0.5/24"], None, ""),
        (["10.1.1.5/24"], [], ""),
        (["10.1.1.5/24"], [("10.2.0.0/16", "10.3.0.1")], GATEWAY.format(r"3\.0\.1", r"10\.1\.1\.5/24")),
        ([], [("10.2.0.0/16", "10.3.0.1")], GATEWAY.format(r"3\.0\.1", "none")),
        (["10.1.1.5/32"], [("10.2.0.0/16", "10.3.0.1"), ("10.3.0.1/32", None)], ""),
        (["fd07::5/64"], [("fd08::/64", "fe80::1")], ""),
    ],
)
def test_a_route_whose_gateway_is_out_of_reach_is_refused(
    nic_driver: DriverHarness, addresses: list[str], routes: list[tuple[str, str | None]] | None, message: str
) -> None:
    given = [RouteConfig(destination=to, gateway=via, scope=0 if via else 253) for to, via in routes or ()]
    interface = InterfaceConfig(addresses=tuple(addresses))
    config = NicConfig(interface=interface, routes=None if routes is None else tuple(given))
    if message:
        with pytest.raises(PermanentError, match=message):
            nic_driver.prepare(claim(ONE, config=config))
    else:
        nic_driver.prepare(claim(ONE, config=config))


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


def test_routes_of_the_main_table_are_in_that_of_the_vrf(nic_driver: DriverHarness) -> None:
    routes = tuple(
        RouteConfig(destination=f"10.{number}.0.0/16", gateway="10.9.0.2", table=table)
        for number, table in enumerate((254, 77), start=50)
    )
    interface = InterfaceConfig(vrf=VrfConfig(name="red", table=100))
    for config, tables in (
        (NicConfig(interface=interface, routes=routes), [100, 77]),
        (NicConfig(interface=interface), [100]),
    ):
        prepared = nic_driver.prepare(claim(ONE, config=config))
        (held,) = nic_driver.held
        assert [route["table"] for route in held.devices[0].data["attachment"]["pod"]["routes"]] == tables
        nic_driver.unprepare(prepared)
