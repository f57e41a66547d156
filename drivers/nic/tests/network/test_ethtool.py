"""Features, channels and rings: what the kernel shows, what a claim switches, and what is refused."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from dra_driver_nic import NicConfig
from dra_driver_nic.config import EthtoolConfig
from dra_driver_nic.network.links import EthtoolLimits, EthtoolSettings, Network, NetworkError
from dra_driver_nic.testing import (
    PrivateNamespace,
    PrivateNetworks,
    run_sandbox,
    stop_sandbox,
    wait_for_state,
)

from dra_sdk import PermanentError, RetriableError
from dra_sdk.testing import DriverHarness, claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
ONE = request("nic", where='device.attributes["dra.net"].ifName == "nic0"')


def settings(namespace: PrivateNamespace, name: str) -> EthtoolSettings:
    with closing(namespace.open()) as opened:
        return opened.run(lambda network: network.ethtool(name))


def test_features_and_channels_are_switched_in_the_pod_and_restored(
    nic_driver: DriverHarness, networks: PrivateNetworks
) -> None:
    before, there = networks.node.state(), settings(networks.node, "nic0")
    assert there.features["tx-tcp-segmentation"]
    pod = networks.add_pod("pod1")
    config = EthtoolConfig(features={"tso": False, "tx-checksum-sctp": False, "gro": True}, channels={"rx": 1})
    prepared = nic_driver.prepare(claim(ONE, config=NicConfig(ethtool=config)))
    made = run_sandbox(nic_driver, "pod1")
    now = settings(pod, "nic0")
    switched = {name for name, is_on in now.features.items() if is_on != there.features[name]}
    segmentation = {f"tx-{protocol}-segmentation" for protocol in ("tcp", "tcp-ecn", "tcp-mangleid", "tcp6")}
    assert switched == {*segmentation, "tx-checksum-sctp", "rx-gro"}
    assert (now.channels["rx"], there.channels["rx"]) == (1, 2)
    stop_sandbox(nic_driver, made)
    wait_for_state(networks.node, before)
    nic_driver.unprepare(prepared)
    assert settings(networks.node, "nic0") == there


def test_what_the_pod_itself_switches_is_restored(nic_driver: DriverHarness, networks: PrivateNetworks) -> None:
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    nic_driver.prepare(claim(ONE))
    made = run_sandbox(nic_driver, "pod1")

    def switch(network: Network) -> None:
        assert network.set_features("nic0", {"tx-nocache-copy": True}) == []
        network.set_channels("nic0", {"tx": 1})

    with closing(pod.open()) as opened:
        opened.run(switch)
    stop_sandbox(nic_driver, made)
    wait_for_state(networks.node, before)


def test_a_feature_that_another_one_prevents_is_undone(nic_driver: DriverHarness, networks: PrivateNetworks) -> None:
    before = networks.node.state()
    pod = networks.add_pod("pod1")
    config = EthtoolConfig(features={"tx-checksum-ip-generic": False, "tx-tcp-segmentation": True})
    nic_driver.prepare(claim(ONE, config=NicConfig(ethtool=config)))
    with pytest.raises(RetriableError, match="does not switch tx-tcp-segmentation on for interface nic0"):
        run_sandbox(nic_driver, "pod1")
    wait_for_state(networks.node, before)
    assert pod.names() == {"lo"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"features": {"tx-warp": True}}, r"features\.tx-warp is no feature that it has; it has .*rx-gro, .*"),
        ({"features": {"rx-lro": True}}, r"features\.rx-lro is fixed for it and cannot be switched"),
        ({"features": {"tso": True, "tx-tcp-segmentation": False}}, "tso and tx-tcp-segmentation both mean"),
        ({"channels": {"rx": 3}}, r"channels\.rx 3 exceeds 2, which is the most"),
        ({"channels": {"combined": 1}}, r"channels\.combined cannot be set: it has rx, tx"),
        ({"rings": {"rx": 512}}, r"rings\.rx cannot be set: it has none that can be set"),
    ],
)
def test_what_the_interface_does_not_have_is_refused_before_anything_changes(
    nic_driver: DriverHarness, networks: PrivateNetworks, config: dict[str, Any], message: str
) -> None:
    before = networks.node.state()
    asked = claim(ONE, config=NicConfig(ethtool=EthtoolConfig.model_validate(config)))
    with pytest.raises(PermanentError, match=rf"device nic0 \(interface nic0\): ethtool.*{message}"):
        nic_driver.prepare(asked)
    assert networks.node.state() == before


def test_an_interface_without_channels_shows_none(networks: PrivateNetworks) -> None:
    networks.node.ip("link add link wire0 name mac0 type macvlan mode bridge")
    with closing(networks.open(None)) as node:
        settings, limits = node.run(lambda network: (network.ethtool("mac0"), network.ethtool_limits("mac0")))
        assert (settings.channels, settings.rings) == ({}, {})
        assert isinstance(limits, EthtoolLimits)
        assert "tx-scatter-gather" in limits.fixed
        with pytest.raises(NetworkError, match="interface mac0 does not support to set channels rx 2"):
            node.run(lambda network: network.set_channels("mac0", {"rx": 2}))
        with pytest.raises(NetworkError, match="read the settings of interface gone0"):
            node.run(lambda network: network.ethtool("gone0"))
