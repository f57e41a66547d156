"""Our network driver without metadata files (KEP-5304), which dranet does not have: each is a mount in a container."""

from __future__ import annotations

from dataclasses import replace

from dra_driver_nic import NicDriver

from dra_sdk import DriverInfo


class NicWithoutMetadata(NicDriver):
    """The driver in all else."""

    def dra_driver_info(self) -> DriverInfo:
        return replace(super().dra_driver_info(), metadata=False)
