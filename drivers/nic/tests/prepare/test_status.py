"""What a claim's status says while its pod comes and goes; and pods whose sandbox started without the driver."""

from __future__ import annotations

from typing import Any

import pytest
from dra_driver_nic import NicConfig
from dra_driver_nic.config import InterfaceConfig
from dra_driver_nic.testing import PrivateNetworks

from dra_sdk.testing import DriverHarness, PreparedClaim, RefusedError, claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
ONE = request("nic", where='device.attributes["dra.net"].ifName == "nic0"')


def status_of(driver: DriverHarness, prepared: PreparedClaim) -> tuple[Any, ...]:
    """Status, reason and message of the condition Ready, and the network data of the only device."""
    (entry,) = driver.cluster.claims[prepared.ref.uid]["status"]["devices"]
    (condition,) = entry["conditions"]
    assert condition["type"] == "Ready"
    return condition["status"], condition["reason"], condition["message"], entry.get("networkData")


def test_the_status_follows_the_interface(nic_driver: DriverHarness, networks: PrivateNetworks) -> None:
    mac = "02:00:00:00:00:77"
    addresses = ("10.1.1.5/24", "fd07::5/64")
    config = NicConfig(interface=InterfaceConfig(name="net1", hardware_addr=mac, addresses=addresses), routes=())
    network = {"interfaceName": "net1", "hardwareAddress": mac, "ips": [*addresses]}
    with nic_driver.nri() as runtime:
        networks.add_pod("sandbox-1")
        prepared = nic_driver.prepare(claim(ONE, config=config))
        assert status_of(nic_driver, prepared) == ("False", "WaitingForSandbox", "", network)
        pod = runtime.run_pod(prepared)
        assert status_of(nic_driver, prepared) == ("True", "Attached", "", network)
        nic_driver.restart()
        nic_driver.prepare(prepared)
        assert status_of(nic_driver, prepared) == ("True", "Attached", "", network)
        pod.stop()
        assert status_of(nic_driver, prepared) == ("False", "Detached", "", None)


def test_an_attachment_that_fails_has_its_reason_in_the_status(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    message = "device nic0 (interface nic0) cannot be called nic0 in the pod: the pod has an interface of this name"
    with nic_driver.nri() as runtime:
        networks.add_pod("sandbox-1").ip("link add nic0 type veth peer name other")
        prepared = nic_driver.prepare(claim(ONE))
        pod = runtime.run_pod(prepared)  # a sandbox that fails would stay in containerd for ever
        with pytest.raises(RefusedError, match="cannot be called nic0 in the pod"):
            pod.create_container()
        assert status_of(nic_driver, prepared) == ("False", "AttachFailed", message, None)
        pod.stop()
        networks.add_pod("sandbox-3")
        runtime.run_pod(prepared).create_container()
        assert status_of(nic_driver, prepared)[:2] == ("True", "Attached")


def test_more_addresses_than_a_status_holds_are_cut(nic_driver: DriverHarness, networks: PrivateNetworks) -> None:
    networks.node.ip(*(f"addr add 10.1.1.{number}/24 dev nic0" for number in range(1, 21)))
    prepared = nic_driver.prepare(claim(ONE))
    assert len(status_of(nic_driver, prepared)[3]["ips"]) == 16


def test_a_pod_that_started_without_the_driver_gets_its_interface_later(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    pod = networks.add_pod("sandbox-1")
    asked = claim(ONE)
    with nic_driver.nri() as runtime:
        prepared = nic_driver.prepare(asked, containers={"main": ["nic"], "second": ["nic"]})
        runtime.disconnect()
        sandbox = runtime.run_pod(prepared)
        assert "nic0" not in pod.names()
        nic_driver.restart()
        sandbox.create_container()
        assert "nic0" in pod.names()
        assert status_of(nic_driver, prepared)[:2] == ("True", "Attached")
        sandbox.create_container(name="second")
        sandbox.stop()
        assert "nic0" in networks.node.names()


def test_a_pod_that_joins_a_claim_starts_when_the_first_has_ended(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    networks.add_pod("sandbox-1")
    second = networks.add_pod("sandbox-2")
    with nic_driver.nri() as runtime:
        prepared = nic_driver.prepare(claim(ONE))
        first = runtime.run_pod(prepared)
        nic_driver.prepare(prepared.claim, pod="joined")
        joined = runtime.run_pod(prepared, name="joined")
        with pytest.raises(RefusedError, match=r"nic0\) is in pod default/.*; it can be in one pod only"):
            joined.create_container()
        assert status_of(nic_driver, prepared)[:2] == ("True", "Attached")
        first.stop()
        joined.create_container()
        assert "nic0" in second.names()
