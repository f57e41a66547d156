"""What devices of a claim refuse to each other, and what has changed since they were published."""

from __future__ import annotations

import json

import pytest
from dra_driver_nic import NicConfig
from dra_driver_nic.config import InterfaceConfig, VrfConfig
from dra_driver_nic.testing import PrivateNetworks

from dra_sdk import AllocatedDevice, Claim, PermanentError, RetriableError
from dra_sdk.testing import DriverHarness, claim, request

pytest_plugins = ["dra_sdk.testing.plugin"]
ONE = request("nic", where='device.attributes["dra.net"].ifName == "nic0"')
BOTH = request("nics", count=2)


def test_a_name_or_address_that_is_used_already_is_refused(nic_driver: DriverHarness) -> None:
    for interface, message in (
        (InterfaceConfig(name="net1"), "nic0 and nic1 would both be interface net1 in the pod"),
        (
            InterfaceConfig(addresses=("10.1.1.5/24",)),
            r"10\.1\.1\.5 of interface\.addresses is used by device nic0 of the",
        ),
    ):
        asked = claim(BOTH, config=NicConfig(interface=interface, routes=()))
        with pytest.raises(PermanentError, match=message):
            nic_driver.prepare(asked)
        nic_driver.unprepare(asked)
    addressed = NicConfig(interface=InterfaceConfig(addresses=("10.1.1.5/24",)), routes=())
    nic_driver.prepare(claim(ONE, config=addressed))
    with pytest.raises(PermanentError, match=r"device nic1: address 10\.1\.1\.5 .* is used by device nic0"):
        nic_driver.prepare(claim(config=addressed))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("route add default via 10.9.0.2", "interface nic0 is an uplink of the node: a default route goes through it"),
        ("link add link nic0 name vlan7 type macvlan", "interface nic0 carries interface vlan7"),
        ("link del nic0", "its interface is not on the node: something else has taken, renamed or removed it"),
    ],
)
def test_an_interface_that_was_taken_since_discovery_is_refused(
    nic_driver: DriverHarness, networks: PrivateNetworks, change: str, message: str
) -> None:
    device = AllocatedDevice("nic", "node-1", "nic0", config=NicConfig())
    asked = Claim("default", "claim", "uid", nic_driver.node.node, [device])
    networks.node.ip(change)
    with pytest.raises(RetriableError, match=f"device nic0: {message}"):
        next(iter(nic_driver.plugin.dra_prepare(asked)))


@pytest.mark.parametrize(
    ("first", "second", "message"),
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
    nic_driver: DriverHarness, first: InterfaceConfig, second: InterfaceConfig, message: str
) -> None:
    wanted = [request(name, where=f'device.attributes["dra.net"].ifName == "{name}"') for name in ("nic0", "nic1")]
    asked = (
        claim(*wanted).configured(NicConfig(interface=first), "nic0").configured(NicConfig(interface=second), "nic1")
    )
    with pytest.raises(PermanentError, match=message):
        nic_driver.prepare(asked)


def test_the_record_of_another_claim_is_left_alone(nic_driver: DriverHarness) -> None:
    prepared = nic_driver.prepare(claim(ONE))
    record = nic_driver.node.path("/var/lib/kubelet/plugins/dra.net/devices/nic0/record.json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "claim": "another"}))
    nic_driver.unprepare(prepared)
    assert json.loads(record.read_text())["claim"] == "another"
