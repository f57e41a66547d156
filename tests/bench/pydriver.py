"""The Python half of the benchmark: what `godriver` does, written as an author of dra_sdk writes it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from pydantic import Field

from dra_sdk import Claim, ContainerEdits, Device, DriverInfo, OpaqueConfig, PreparedDevice, Version

NAME_VARIABLE = "BENCH_DRIVER_NAME"
DEVICES_VARIABLE = "BENCH_DEVICES"


class BenchConfig(OpaqueConfig, api_version="bench.dra-sdk.example/v1"):
    """What a claim or class may ask of a device."""

    level: int = Field(default=1, ge=0, le=100)
    label: str = "none"


class BenchDriver:
    """As many made-up devices as the environment says."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(os.environ[NAME_VARIABLE], configs=[BenchConfig])

    def dra_discover(self) -> Iterator[Device]:
        for index in range(int(os.environ[DEVICES_VARIABLE])):
            yield Device(
                f"device-{index:04d}",
                {"index": index, "model": "bench-one", "version": Version("1.2.3"), "healthy": True},
                {"memory": "16Gi"},
            )

    def dra_prepare(self, claim: Claim[BenchConfig]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            variable = f"BENCH_{device.name.upper().replace('-', '_')}"
            level, label = str(device.config.level), device.config.label
            env = {variable: device.name, f"{variable}_LEVEL": level, f"{variable}_LABEL": label}
            yield device.prepared(ContainerEdits(env=env))
