"""The picture of `dra-sdk nic top`."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from dra_driver_nic import NicConfig, NicDriver, NicSettings
from dra_driver_nic.config import InterfaceConfig
from dra_driver_nic.testing import PrivateNetworks, run_sandbox
from dra_driver_nic.testing.machines import MACHINES

from dra_sdk.testing import DriverHarness, FakeNode, claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]


def top(driver: DriverHarness) -> list[str]:
    plugin = driver.plugin
    assert isinstance(plugin, NicDriver)
    return list(plugin.dra_top(driver.node.node, driver.held))


@pytest.fixture
def plugged(dra_node: FakeNode, dra_driver: Any) -> Any:
    def plug(machine: str, settings: NicSettings | None = None) -> DriverHarness:
        MACHINES[machine].write(dra_node)
        made = partial(NicDriver, effects=dra_node.effects)
        harness: DriverHarness = dra_driver(made, settings=settings or NicSettings())
        return harness

    return plug


def is_vf(number: int) -> Any:
    domain = 'device.attributes["sriovnetwork.k8snetworkplumbingwg.io"]'
    return request(where=f"has({domain}.vfID) && {domain}.vfID == {number}")


def test_each_vf_of_a_card_is_a_character(plugged: Any) -> None:
    driver = plugged("mlx5")
    driver.prepare(claim(is_vf(1), name="train-0", config=NicConfig(interface=InterfaceConfig(name="net1"))))
    assert top(driver) == [
        "CARD       ADDRESS       NUMA  SPEED  STATE  VFS",
        "ens1f0np0  0000:3b:00.0  0     100G   up     .A..",
        "",
        "INTERFACE  ADDRESS       NUMA  SPEED  STATE  HELD",
        "ens1f1np1  0000:3b:00.1  0     -      down   !",
        "",
        "A  default/train-0  pci-0000-3b-00-3: ens1f0v1 as net1, not in a pod",
        ".  free",
        "!  free and unhealthy: pci-0000-3b-00-1",
    ]


def test_a_claim_of_a_whole_card_has_all_its_vfs(plugged: Any) -> None:
    driver = plugged("mlx5", NicSettings(device_mode="partitionable"))
    driver.prepare(claim(request(where='device.attributes["dra.net"].ifName == "ens1f0np0"')))
    assert top(driver)[1].endswith("  AAAA")


def test_a_vf_that_something_else_uses_is_shown(plugged: Any) -> None:
    driver = plugged("mlx5")
    driver.node.remove("/sys/class/net/ens1f0v3")
    driver.node.remove("/sys/class/infiniband/mlx5_5")
    assert top(driver)[1].endswith("  ...-")


def test_more_claims_than_letters_have_a_sign_together(plugged: Any) -> None:
    driver = plugged("efa", NicSettings(shared=("ens5",)))
    shared = request(where="device.allowMultipleAllocations")
    for _ in range(54):
        driver.prepare(claim(shared))
    (row,) = [line for line in top(driver) if line.startswith("ens5")]
    assert row.endswith("z++ (shared)")


def test_an_interface_in_a_pod_is_shown_with_its_pod(nic_driver: DriverHarness, networks: PrivateNetworks) -> None:
    networks.add_pod("pod1")
    where = 'device.attributes["dra.net"].ifName == "nic0"'
    nic_driver.prepare(claim(request(where=where), name="one"))
    run_sandbox(nic_driver, "pod1")
    lines = top(nic_driver)
    assert "A  default/one  nic0: nic0 as nic0 in default/name-uid-1" in lines
    assert [line.split() for line in lines if line.startswith("nic")] == [
        ["nic1", "-", "-", "-", "up", "."],
        ["nic0", "-", "-", "-", "in", "a", "pod", "A"],
    ]
