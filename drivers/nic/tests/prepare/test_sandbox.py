"""A pod's sandbox starts and stops: who has an interface when, and what the node publishes of it."""

from __future__ import annotations

import socket
from dataclasses import replace
from functools import partial

import pytest
from dra_driver_nic import NicConfig
from dra_driver_nic.config import InterfaceConfig
from dra_driver_nic.testing import EVERY_FIELD, PrivateNetworks, run_sandbox, sandbox, stop_sandbox

from dra_sdk import PermanentError, RetriableError
from dra_sdk.testing import DriverHarness, claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
ONE = request("nic", where='device.attributes["dra.net"].ifName == "nic0"')
BOTH = request("nics", count=2)


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
        mine = [claim for claim in nic_driver.held if claim.uid == held.ref.uid]
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


def test_a_device_is_published_unchanged_while_a_pod_has_it(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    before = {name: dict(device.attributes) for name, device in nic_driver.devices.items()}
    networks.add_pod("pod1")
    prepared = nic_driver.prepare(claim(ONE, config=EVERY_FIELD))
    made = run_sandbox(nic_driver, "pod1")
    for _ in range(2):
        nic_driver.discover()
        assert {name: dict(device.attributes) for name, device in nic_driver.devices.items()} == before
        nic_driver.restart()
    stop_sandbox(nic_driver, made)
    nic_driver.unprepare(prepared)
    nic_driver.discover()
    assert {name: dict(device.attributes) for name, device in nic_driver.devices.items()} == before
