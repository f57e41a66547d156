"""What a user may configure: GpuConfig and VfioDeviceConfig of `gpu.resource.amd.com/v1alpha1`."""

from __future__ import annotations

from typing import Final, Literal, TypeVar

from pydantic import Field

from dra_sdk import AllocatedDevice, ConfigError, OpaqueConfig
from dra_sdk.hardware.vfio import Iommu, IommuField

API_VERSION: Final = "gpu.resource.amd.com/v1alpha1"
Config = TypeVar("Config", bound=OpaqueConfig)
ComputePartition = Literal["SPX", "DPX", "TPX", "QPX", "CPX"]


class GpuConfig(OpaqueConfig, api_version=API_VERSION):
    """Configuration of a GPU or a partition. Without fields, which is how existing claims carry it, nothing changes."""

    compute_partition: ComputePartition | None = Field(
        default=None,
        description="The compute partition mode of a whole GPU while the claim has it; the claim gets all partitions.",
    )


class VfioDeviceConfig(OpaqueConfig, api_version=API_VERSION):
    """Configuration of GPUs and virtual functions for virtual machines."""

    iommu: IommuField = Field(default_factory=Iommu)


CONFIGS: Final[tuple[type[OpaqueConfig], ...]] = (GpuConfig, VfioDeviceConfig)
"""The SDK uses the first for a claim without configuration."""


def config_for(device: AllocatedDevice[OpaqueConfig], wanted: type[Config]) -> Config:
    """Return the configuration of a device that takes this kind.

    Raises ConfigError if only one of another kind applies to it.

    A configuration of another kind that asks for nothing does no harm: a DeviceClass of all devices may have it.
    """
    config = device.config_of(wanted)
    for other in () if config else device.configs:
        if other != type(other)():
            raise ConfigError(f"{other.kind} cannot apply to device {device.name}, which takes a {wanted.kind}")
    return config or wanted()
