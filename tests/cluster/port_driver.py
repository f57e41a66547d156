"""A driver for the cluster tests: network ports with a status, a metadata file, and ports that somebody attaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dra_sdk import Claim, Condition, ContainerEdits, Device, DeviceStatus, DriverInfo, NetworkData, PreparedDevice

NAME: Final = "ports.example.com"
ATTACHED: Final = f"{NAME}/attached"
BROKEN: Final = f"{NAME}/broken"


class PortDriver:
    """Two ports of the node, `port-0` and `port-1`, and two that a fabric attaches to it, `fabric-0` and `fabric-1`."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME, metadata=True)

    def dra_discover(self) -> Iterator[Device]:
        for number in range(2):
            yield Device(f"port-{number}", {"kind": "port", "number": number, "driverVersion": "1.2.3"})
        for number in range(2):
            conditions = {"binding_conditions": [ATTACHED], "binding_failure_conditions": [BROKEN]}
            yield Device(f"fabric-{number}", {"kind": "fabric", "number": number}, **conditions)

    def dra_prepare(self, claim: Claim[None]) -> Iterator[PreparedDevice]:
        for number, device in enumerate(claim.devices):
            network = NetworkData(
                interface_name=f"net{number}", hardware_address="02:00:00:00:00:01", ips=["192.0.2.7/24"]
            )
            ready = Condition(type="Ready", status=True, reason="Configured", message=f"{device.name} is configured")
            yield device.prepared(
                ContainerEdits(env={"PORT": device.name}),
                status=DeviceStatus(conditions=[ready], data={"vlan": 7}, network=network),
                metadata={"vlan": 7},
            )
