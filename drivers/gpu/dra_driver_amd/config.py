"""What a user may configure: GpuConfig and VfioDeviceConfig of `gpu.resource.amd.com/v1alpha1`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from dra_sdk import AllocatedDevice, ConfigError, OpaqueConfig

API_VERSION: Final = "gpu.resource.amd.com/v1alpha1"
ComputePartition = Literal["SPX", "DPX", "TPX", "QPX", "CPX"]
BackendPolicy = Literal["LegacyOnly", "PreferIommuFD"]


class GpuConfig(OpaqueConfig, api_version=API_VERSION):
    """Configuration of a GPU or a partition. Without fields, which is how existing claims carry it, nothing changes."""

    compute_partition: ComputePartition | None = Field(
        default=None,
        description="The compute partition mode of a whole GPU while the claim has it; the claim gets all partitions.",
    )


class Iommu(BaseModel):
    """The interface by which a virtual machine gets the GPU."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    backend_policy: BackendPolicy = "LegacyOnly"
    enable_api_device: Annotated[bool, Field(strict=True, alias="enableAPIDevice")] = False


class VfioDeviceConfig(OpaqueConfig, api_version=API_VERSION):
    """Configuration of GPUs and virtual functions for virtual machines."""

    iommu: Annotated[
        Iommu, BeforeValidator(lambda value: {} if value is None else value, json_schema_input_type=Iommu | None)
    ] = Field(default_factory=Iommu)


CONFIGS: Final[tuple[type[OpaqueConfig], ...]] = (GpuConfig, VfioDeviceConfig)
"""The SDK uses the first for a claim without configuration."""


def gpu_config(device: AllocatedDevice[OpaqueConfig]) -> GpuConfig:
    """The configuration of a GPU or partition. Raises ConfigError if only one of another kind applies to it."""
    _check(device, GpuConfig)
    return next((each for each in reversed(device.configs) if isinstance(each, GpuConfig)), GpuConfig())


def vfio_config(device: AllocatedDevice[OpaqueConfig]) -> VfioDeviceConfig:
    """The configuration of a VFIO device. Raises ConfigError if only one of another kind applies to it."""
    _check(device, VfioDeviceConfig)
    return next((each for each in reversed(device.configs) if isinstance(each, VfioDeviceConfig)), VfioDeviceConfig())


def _check(device: AllocatedDevice[OpaqueConfig], wanted: type[OpaqueConfig]) -> None:
    """A configuration of another kind that asks for nothing does no harm: a DeviceClass of all devices may have it."""
    if any(isinstance(each, wanted) for each in device.configs):
        return
    for each in device.configs:
        if each != type(each)():
            raise ConfigError(f"{each.kind} cannot apply to device {device.name}, which takes a {wanted.kind}")
