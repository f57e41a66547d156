"""A driver for the cluster tests: a lamp is a device node, a mount, and a variable for its brightness."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from dra_sdk import (
    Claim,
    ContainerEdits,
    Device,
    DeviceNode,
    DriverInfo,
    HeldClaim,
    Mount,
    OpaqueConfig,
    PreparedDevice,
)


class LampConfig(OpaqueConfig, api_version="lamps.example.com/v1"):
    brightness: int = Field(default=100, ge=0, le=100)


class LampDriver:
    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo("lamps.example.com", configs=[LampConfig])

    def dra_discover(self) -> Iterator[Device]:
        for number in range(8):
            yield Device(f"lamp-{number}", attributes={"colour": "red" if number < 4 else "blue", "number": number})

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            key = device.base_request.upper().replace("-", "_")
            env = {f"LAMP_{key}": device.name, f"BRIGHTNESS_{key}": str(device.config.brightness)}
            node = DeviceNode(f"/dev/{device.name}", host_path="/dev/null")
            mount = Mount("/etc/os-release", f"/etc/{device.name}")
            yield device.prepared(ContainerEdits(env=env, device_nodes=[node], mounts=[mount]))

    def dra_unprepare(self, claim: HeldClaim) -> None:
        """Does nothing. The hook exists so that tests can see that it is called."""
