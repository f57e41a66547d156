"""The kernel's network: what is written is read again, and what the kernel refuses is a sentence."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pytest
from dra_driver_nic.network.kernel import KernelNamespace
from dra_driver_nic.network.links import Address, Neighbour, Network, NetworkError, Route, RoutingRule
from dra_driver_nic.network.netlink import LinkEvents
from dra_driver_nic.testing import PrivateNamespace, PrivateNetworks
from dra_driver_nic.testing.fake_rdma import namespace_of_thread

pytest_plugins = ["dra_sdk.testing.plugin"]
NIC0 = 2


@pytest.fixture
def node(networks: PrivateNetworks) -> Iterator[KernelNamespace]:
    with closing(networks.open(None)) as opened:
        yield opened


def test_an_interface_is_found_by_either_name(node: KernelNamespace) -> None:
    def find(network: Network) -> list[int | None]:
        network.add_altname(NIC0, "dra-an-alternative-name-that-is-long")
        names = ("nic0", "dra-an-alternative-name-that-is-long", "nic7")
        assert [network.index(name) for name in names] == [NIC0, NIC0, 0]
        return [link and link.index for link in map(network.find, names)]

    assert node.run(find) == [NIC0, NIC0, None]
    (listed,) = [link for link in node.run(lambda network: network.links()) if link.index == NIC0]
    assert node.run(lambda network: network.find("nic0")) == listed


@pytest.mark.parametrize(
    "address",
    [
        Address(address="10.20.0.1/24", broadcast="10.20.0.255", label="nic0:7"),
        Address(address="10.21.0.1/32", peer="10.21.0.2", label="nic0"),
        Address(address="10.22.0.1/24", label="nic0", scope=253, metric=77),
        Address(address="fd20::1/64", flags=0x02 | 0x200),
        Address(address="fd21::1/64", metric=77),
    ],
)
def test_an_address_is_read_as_it_was_added(node: KernelNamespace, address: Address) -> None:
    def add(network: Network) -> list[Address]:
        network.add_address(NIC0, address)
        network.add_address(NIC0, address)
        return network.addresses()[NIC0]

    assert address in node.run(add)


def test_the_rest_of_an_addresss_life_is_read(node: KernelNamespace) -> None:
    limited = Address(address="10.23.0.1/24", label="nic0", valid=1000, preferred=500)

    def add(network: Network) -> list[Address]:
        network.add_address(NIC0, limited)
        return network.addresses()[NIC0]

    (read,) = [address for address in node.run(add) if address.address == limited.address]
    assert read.valid is not None
    assert read.preferred is not None
    assert 900 < read.valid <= 1000
    assert 400 < read.preferred <= 500


@pytest.mark.parametrize(
    "route",
    [
        Route(destination="10.30.0.0/16", gateway="10.9.0.3", source="10.9.0.1", metric=5, mtu=1400),
        Route(destination="10.31.0.0/24", scope=253, table=1000, protocol=3),
        Route(destination="0.0.0.0/0", gateway="10.9.0.3", table=77),
        Route(destination="10.32.0.0/16", gateway="10.50.0.1", flags=4),
        Route(destination="10.33.0.0/16", gateway="fd00::7"),
        Route(destination="fd30::/64", gateway="fd00::7", metric=9),
        Route(destination="::/0", gateway="fd00::7", table=1000, metric=1024),
    ],
)
def test_a_route_is_read_as_it_was_added(node: KernelNamespace, route: Route) -> None:
    def add(network: Network) -> Sequence[Route]:
        network.add_route(NIC0, route)
        network.add_route(NIC0, route)
        return network.snapshot().routes[NIC0]

    assert route in node.run(add)


def test_a_default_route_of_another_table_makes_no_uplink(node: KernelNamespace) -> None:
    def uplinks(network: Network, route: Route) -> set[int]:
        network.add_route(NIC0, route)
        return set(network.snapshot().default_routes)

    route = Route(destination="0.0.0.0/0", gateway="10.9.0.3", table=77)
    assert node.run(lambda network: uplinks(network, route)) == set()
    assert node.run(lambda network: uplinks(network, replace(route, table=254))) == {NIC0}


def test_what_exists_already_is_no_error(node: KernelNamespace, networks: PrivateNetworks) -> None:
    def twice(network: Network) -> list[Neighbour]:
        for _ in range(2):
            network.add_rule(RoutingRule(priority=50, source="10.9.0.0/24", destination="10.8.0.0/16", table=77))
            network.add_neighbour(NIC0, Neighbour(address="fd00::9", mac="02:00:00:00:00:11"))
        return network.neighbours(NIC0)

    assert Neighbour(address="fd00::9", mac="02:00:00:00:00:11") in node.run(twice)
    assert networks.node.ip("rule").count("from 10.9.0.0/24 to 10.8.0.0/16 lookup 77") == 1


@pytest.mark.parametrize(
    ("change", "number", "message"),
    [
        (
            lambda network: network.change(NIC0, name="nic1"),
            errno.EEXIST,
            "to set ifname nic1 of interface 2: File exists",
        ),
        (lambda network: network.change(NIC0, mtu=70000), errno.EINVAL, "to set mtu 70000 of interface 2"),
        (lambda network: network.change(99, up=True), errno.ENODEV, "to set state up of interface 99"),
        (
            lambda network: network.add_altname(NIC0, "nic1"),
            errno.EEXIST,
            "to give interface 2 the alternative name nic1",
        ),
        (
            lambda network: network.set_sysctl("nic0", "ipv4.conf.no_such", "1"),
            errno.ENOENT,
            r"sysctl .*no_such cannot",
        ),
    ],
)
def test_a_refusal_has_the_kernels_reason(
    node: KernelNamespace, change: Callable[[Network], None], number: int, message: str
) -> None:
    with pytest.raises(NetworkError, match=message) as refused:
        node.run(change)
    assert refused.value.errno == number


def test_a_namespace_that_does_not_exist_cannot_be_opened() -> None:
    with pytest.raises(FileNotFoundError):
        KernelNamespace("/run/netns/no-such-namespace")


@pytest.mark.parametrize("taken", [False, True])
def test_an_interface_moves_and_gets_its_name_by_one_message(
    node: KernelNamespace, networks: PrivateNetworks, taken: bool
) -> None:
    """Also if the other namespace has its old name. If the new one is taken, the tag shows where it is."""
    pod = networks.add_pod("pod1")
    pod.ip("link add nic0 type veth peer name net1" if taken else "link add nic0 type veth peer name other")

    def move(network: Network) -> None:
        network.add_altname(NIC0, "tag")
        move_only(network, pod)

    if taken:
        with pytest.raises(
            NetworkError, match="refused to move interface 2 to another network namespace as net1: File"
        ):
            node.run(move)
        assert "tag" in networks.node.ip("link show nic0")
        pod.ip("link set nic0 name old")
        with pytest.raises(NetworkError, match="as net1: File exists"):
            node.run(lambda network: move_only(network, pod))
        assert "tag" in pod.ip("link show nic0")
    else:
        node.run(move)
        assert "tag" in pod.ip("link show net1")
        assert "state DOWN" in pod.ip("link show net1")


def move_only(network: Network, pod: PrivateNamespace) -> None:
    with closing(pod.open()) as target:
        network.move(NIC0, target.handle, name="net1")


def test_a_thread_is_in_the_namespace_for_as_long_as_a_function_runs_there(node: KernelNamespace) -> None:
    before = namespace_of_thread()

    def fail(_network: Network) -> None:
        inside.append(namespace_of_thread())
        raise ValueError("on purpose")

    inside = [node.run(lambda _network: namespace_of_thread())]
    assert namespace_of_thread() == before
    with pytest.raises(ValueError, match="on purpose"):
        node.run(fail)
    assert namespace_of_thread() == before
    assert inside == [os.fstat(node.handle).st_ino] * 2
    assert node.run(lambda network: network.find("nic0")) is not None, "another socket is opened after an error"


def test_events_report_that_something_has_changed(networks: PrivateNetworks) -> None:
    with closing(networks.node.enter(LinkEvents)) as events:
        while events.receive(0.1) is not None:
            continue
        networks.node.ip("link set nic0 mtu 3000")
        assert events.receive(30) == b""
