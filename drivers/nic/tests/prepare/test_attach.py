"""VRFs of pods: shared by interfaces of one name, removed with the last one, and told from those of others."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import pytest
from dra_driver_nic import NicConfig
from dra_driver_nic.config import InterfaceConfig, RouteConfig, VrfConfig
from dra_driver_nic.network.links import Link, NetworkError, Vrf
from dra_driver_nic.prepare.attach import check_vrf, enter_vrf, leave_vrf
from dra_driver_nic.testing import PrivateNetworks, run_sandbox, stop_sandbox, wait_for_state

from dra_sdk import PermanentError
from dra_sdk.testing import DriverHarness, claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
RED = Vrf(name="red", table=100)
ONE = request("nic", where='device.attributes["dra.net"].ifName == "nic0"')


class PodNetwork:
    """The interfaces of a pod, in memory; of a VRF, what a kernel does for it."""

    def __init__(self, *names: str) -> None:
        self._links = {number: Link(index=number, name=name) for number, name in enumerate(names, start=1)}

    def links(self) -> list[Link]:
        return [*self._links.values()]

    def link(self, name: str) -> Link:
        return next(each for each in self._links.values() if each.name == name)

    def find(self, name: str) -> Link | None:
        return next((each for each in self._links.values() if name in {each.name, *each.altnames}), None)

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
    assert [each.name for each in network.links()] == ["net1", "net2", "red"]
    assert {network.link(name).master for name in ("net1", "net2")} == {network.link("red").index}
    leave_vrf(network, network.link("net1"), RED)
    assert "red" in {each.name for each in network.links()}
    leave_vrf(network, network.link("net2"), RED)
    assert [(each.name, each.master) for each in network.links()] == [("net1", 0), ("net2", 0)]


def test_a_vrf_that_the_pod_has_already_stays() -> None:
    network = PodNetwork("net1")
    network.add_vrf(RED)
    enter_vrf(network, network.link("net1").index, RED)
    leave_vrf(network, network.link("net1"), RED)
    assert [each.name for each in network.links()] == ["net1", "red"]


@pytest.mark.parametrize(
    ("link", "told"),
    [
        (Link(index=5, name="red", kind="vrf", table=7), "another VRF of table 7 of this name"),
        (Link(index=5, name="red", kind="veth"), "another interface of kind veth of this name"),
        (Link(index=5, name="eth0", kind="veth", altnames=("red",)), "another interface of kind veth"),
    ],
)
def test_a_name_that_something_else_has_is_refused(link: Link, told: str) -> None:
    with pytest.raises(NetworkError, match=f"VRF red of table 100 cannot be made: the pod has {told}"):
        check_vrf(RED, [link])


def test_the_table_of_a_vrf_without_one_is_that_of_dranet() -> None:
    assert VrfConfig(name="red", table=7).number == 7
    hashes = {"a": 0xE40C292C, "foobar": 0xBF9CF968}
    assert {name: VrfConfig(name=name).number for name in hashes} == {
        name: 1000 + number % 1000 for name, number in hashes.items()
    }


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
        assert [each["table"] for each in held.devices[0].data["attachment"]["pod"]["routes"]] == tables
        nic_driver.unprepare(prepared)


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


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (
            InterfaceConfig(vrf=VrfConfig(name="red", table=100)),
            InterfaceConfig(vrf=VrfConfig(name="red", table=101)),
            "devices nic0 and nic1 would both have VRF red in the pod, with table 100 and with table 101",
        ),
        (
            InterfaceConfig(name="red"),
            InterfaceConfig(vrf=VrfConfig(name="red")),
            "device nic0 would be interface red in the pod, which is the VRF of device nic1",
        ),
    ],
)
def test_a_vrf_that_two_devices_of_a_claim_want_otherwise_is_refused(
    nic_driver: DriverHarness, first: InterfaceConfig, second: InterfaceConfig, told: str
) -> None:
    wanted = [request(name, where=f'device.attributes["dra.net"].ifName == "{name}"') for name in ("nic0", "nic1")]
    asked = (
        claim(*wanted).configured(NicConfig(interface=first), "nic0").configured(NicConfig(interface=second), "nic1")
    )
    with pytest.raises(PermanentError, match=told):
        nic_driver.prepare(asked)
