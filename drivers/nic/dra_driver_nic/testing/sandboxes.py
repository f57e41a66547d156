"""Sandboxes of pods without a container runtime, and a configuration for them."""

from __future__ import annotations

from typing import Final

from dra_driver_nic.config import (
    EthtoolConfig,
    InterfaceConfig,
    NeighbourConfig,
    NicConfig,
    RouteConfig,
    RuleConfig,
)
from dra_driver_nic.driver import NicDriver
from dra_sdk.nri import PodSandbox
from dra_sdk.testing import DriverHarness

EVERY_FIELD: Final = NicConfig(
    interface=InterfaceConfig(
        name="net1",
        mtu=1400,
        hardware_addr="02:00:00:00:00:77",
        addresses=("10.1.1.5/24", "fd07::5/64"),
        arp_ignore=1,
        arp_announce=2,
        sysctls={"ipv4.conf.rp_filter": "2"},
    ),
    routes=(
        RouteConfig(destination="10.2.0.0/16", gateway="10.3.0.1"),
        RouteConfig(destination="10.3.0.0/24", scope=253),
        RouteConfig(destination="fd08::/64", gateway="fd07::1", source="fd07::5"),
    ),
    rules=(RuleConfig(priority=50, source="10.1.1.0/24", table=99),),
    neighbors=(NeighbourConfig(destination="10.1.1.9", hardware_addr="02:00:00:00:00:99"),),
    ethtool=EthtoolConfig(features={"tso": False, "rx-gro": True}, channels={"rx": 1, "tx": 1}),
)
"""A configuration of an interface with every field that a veth can have."""


def sandbox(driver: DriverHarness, pod: str, uid: str = "uid-1") -> PodSandbox:
    """Make the sandbox of a pod that has all claims which the driver holds, in the namespace `pod`."""
    return PodSandbox(
        id=f"sandbox-{pod}",
        namespace="default",
        name=f"name-{uid}",
        uid=uid,
        claims=driver.held,
        network_namespace=f"/run/netns/{pod}",
    )


def nic_driver(driver: DriverHarness) -> NicDriver:
    """Return the driver of a harness."""
    if not isinstance(driver.plugin, NicDriver):
        raise TypeError(f"this needs a NicDriver, not {driver.plugin!r}")
    return driver.plugin


def run_sandbox(driver: DriverHarness, pod: str, uid: str = "uid-1") -> PodSandbox:
    """Start such a sandbox without a container runtime."""
    made = sandbox(driver, pod, uid)
    nic_driver(driver).dra_run_pod_sandbox(made, driver.node.node)
    return made


def stop_sandbox(driver: DriverHarness, made: PodSandbox) -> None:
    """Stop it."""
    nic_driver(driver).dra_stop_pod_sandbox(made, driver.node.node)
