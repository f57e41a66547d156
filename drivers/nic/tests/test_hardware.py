"""Hardware that leaves and comes back: from a namespace that ended, and from VFIO.

A veth of the real kernel, and files that say that it belongs to a PCI function.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from dra_driver_nic import NicConfig, NicDriver, NicSettings
from dra_driver_nic.config import RouteConfig
from dra_driver_nic.testing import EVERY_FIELD, PrivateNetworks, run_sandbox, wait_for_state, write_interface

from dra_sdk import RetriableError
from dra_sdk.hardware.host import link_target_name
from dra_sdk.testing import DriverHarness, FakeNode, claim
from dra_sdk.testing.sysfs import FakePci, regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]
ADDRESS = "0000:3b:00.0"


@pytest.fixture
def driver(dra_node: FakeNode, dra_driver: Any, networks: PrivateNetworks) -> DriverHarness:
    """nic0 belongs to a PCI function; nothing else is published."""
    loaded = FakePci(address="0000:00:1f.0", class_code=0x010000, driver="vfio-pci", iommu_group=9)
    dra_node.machine(replace(regular_machine(), pci=(FakePci(address=ADDRESS, driver="igb", iommu_group=20), loaded)))
    write_interface(dra_node, "nic0", 3, f"pci0000:00/{ADDRESS}")
    made = partial(NicDriver, effects=dra_node.effects, open_namespace=networks.open)
    harness: DriverHarness = dra_driver(made, settings=NicSettings(return_seconds=0.3))
    return harness


def test_hardware_from_a_namespace_that_ended_is_restored(driver: DriverHarness, networks: PrivateNetworks) -> None:
    before = networks.node.state()
    networks.add_pod("pod1")
    prepared = driver.prepare(claim(config=EVERY_FIELD))
    run_sandbox(driver, "pod1")
    ended = networks.remove_path("pod1")
    message = (
        r"device pci-0000-3b-00-0 \(interface nic0\) has not come back from /run/netns/pod1 of pod default/name-uid-1"
    )
    with pytest.raises(RetriableError, match=message):
        driver.unprepare(prepared)
    node, pod = networks.open(None), ended.open()
    (index,) = [link["ifindex"] for link in json.loads(ended.ip("-j link show net1"))]
    pod.run(lambda network: network.move(index, node.handle))  # under its name in the pod, as the kernel does it
    for namespace in (node, pod, ended):
        namespace.close()
    assert "net1" in networks.node.names()
    driver.restart()
    driver.unprepare(prepared)
    wait_for_state(networks.node, before)
    driver.assert_clean()


def test_a_pod_that_could_not_start_keeps_no_hardware(driver: DriverHarness, networks: PrivateNetworks) -> None:
    before = networks.node.state()
    networks.add_pod("pod1")
    refused = NicConfig(routes=(RouteConfig(destination="10.2.0.0/16", gateway="10.9.0.255"),))  # of broadcast
    prepared = driver.prepare(claim(config=refused))
    with pytest.raises(RetriableError, match="refused to add route"):
        run_sandbox(driver, "pod1")
    networks.end_pod("pod1")
    driver.unprepare(prepared)
    wait_for_state(networks.node, before)
    driver.assert_clean()


def test_a_kernel_driver_that_was_loaded_again_has_made_the_interface_anew(
    driver: DriverHarness, networks: PrivateNetworks
) -> None:
    """So it has no tag, and another name."""
    networks.add_pod("pod1")
    prepared = driver.prepare(claim(config=EVERY_FIELD))
    run_sandbox(driver, "pod1")
    networks.end_pod("pod1")
    driver.node.remove("/sys/class/net/nic0")
    networks.node.ip("link add eth0 type veth peer name wire7")
    write_interface(driver.node, "eth0", 30, f"pci0000:00/{ADDRESS}")
    driver.unprepare(prepared)
    (link,) = json.loads(networks.node.ip("-j addr show nic0"))
    assert (link["mtu"], "altnames" in link, "UP" in link["flags"]) == (4000, False, True)
    assert "10.9.0.1" in [address["local"] for address in link["addr_info"]]
    driver.assert_clean()


def test_another_interface_of_its_name_does_not_stand_for_hardware_that_is_away(
    driver: DriverHarness, networks: PrivateNetworks
) -> None:
    networks.add_pod("pod1")
    prepared = driver.prepare(claim())
    run_sandbox(driver, "pod1")
    away = networks.remove_path("pod1")
    driver.node.remove("/sys/class/net/nic0")
    networks.node.ip("link set wire1 down", "link set wire1 name nic0")
    with pytest.raises(RetriableError, match="has not come back from /run/netns/pod1"):
        driver.unprepare(prepared)
    away.close()


def test_a_function_that_was_unplugged_with_its_pod_is_given_back(
    driver: DriverHarness, networks: PrivateNetworks
) -> None:
    networks.add_pod("pod1")
    prepared = driver.prepare(claim())
    run_sandbox(driver, "pod1")
    driver.node.remove(f"/sys/bus/pci/devices/{ADDRESS}")
    networks.end_pod("pod1")
    driver.unprepare(prepared)
    driver.assert_clean()


def test_an_interface_that_comes_back_from_vfio_is_as_the_old_one(
    driver: DriverHarness, networks: PrivateNetworks
) -> None:
    before = networks.node.state()
    (mac,) = [link["address"] for link in json.loads(networks.node.ip("-j link show nic0"))]
    driver.node.device_node("/dev/vfio/vfio", major=10, minor=196)
    prepared = driver.prepare(claim(config=NicConfig(driver="vfio-pci")))
    assert bound(driver) == "vfio-pci"
    networks.node.ip("link del nic0")  # a driver that is unbound takes its interface along
    driver.node.remove("/sys/class/net/nic0")
    with pytest.raises(RetriableError, match="has not come back after its kernel driver was bound again"):
        driver.unprepare(prepared)
    assert bound(driver) == "igb"
    networks.node.ip("link add eth0 type veth peer name wire0", "link set wire0 up")
    write_interface(driver.node, "eth0", 30, f"pci0000:00/{ADDRESS}")
    driver.unprepare(prepared)
    (link,) = json.loads(networks.node.ip("-j addr show nic0"))
    assert (link["mtu"], link["address"]) == (4000, mac)
    now = networks.node.state()
    assert [route for route in before["routes"] if "nic0" in route and "fe80" not in route] == [
        route for route in now["routes"] if "nic0" in route and "fe80" not in route
    ]
    assert now["neighbours"] == before["neighbours"]
    driver.assert_clean()


def bound(driver: DriverHarness) -> str | None:
    return link_target_name(driver.node.path(f"/sys/bus/pci/devices/{ADDRESS}/driver"))
