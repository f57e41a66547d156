"""What a user may configure: GpuConfig, MigDeviceConfig and VfioDeviceConfig of `resource.nvidia.com/v1beta1`.

Names, defaults and checks are those that claims in the field rely on.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from dra_sdk import OpaqueConfig, Quantity

API_VERSION: Final = "resource.nvidia.com/v1beta1"
MIB: Final = 1 << 20
LARGEST_LIMIT: Final = Quantity("1Pi")
"""The largest memory limit: a thousand times the memory of today's GPUs, and in MiB still a 32-bit integer for MPS."""

Interval = Literal["Default", "Short", "Medium", "Long"]
Strategy = Literal["TimeSlicing", "MPS"]
BackendPolicy = Literal["LegacyOnly", "PreferIommuFD"]
INTERVALS: Final[dict[Interval, int]] = {"Default": 0, "Short": 1, "Medium": 2, "Long": 3}


def _limit(value: Any) -> Any:
    """A memory limit: MPS takes whole MiB, so at least 1Mi, and at most `LARGEST_LIMIT`."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("must be a quantity such as 10Gi")  # noqa: TRY004 (pydantic turns ValueErrors into its own)
    amount = Quantity(value)
    if amount < MIB:
        raise ValueError("must be at least 1Mi")
    if amount > LARGEST_LIMIT:
        raise ValueError(f"must be at most {LARGEST_LIMIT}, which is more than any GPU has")
    return str(value)


Limit = Annotated[str, BeforeValidator(_limit, json_schema_input_type=str | int)]
Percentage = Annotated[int, Field(ge=0, le=100, strict=True)]
Switch = Annotated[bool, Field(strict=True)]


def _absent(default: Any, kind: Any) -> BeforeValidator:
    """`null` in YAML means the default, as for every optional field of Kubernetes; `kind` is what else it may be."""
    return BeforeValidator(lambda value: default if value is None else value, json_schema_input_type=kind | None)


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class TimeSlicingConfig(_Part):
    """How long a process may compute before the next gets its turn."""

    interval: Annotated[Interval, _absent("Default", Interval)] = "Default"


class MpsConfig(_Part):
    """Limits of each client of a claim's MPS daemon."""

    default_active_thread_percentage: Percentage | None = Field(
        default=None, description="Share of the multiprocessors that a client may use, in percent."
    )
    default_pinned_device_memory_limit: Limit | None = Field(
        default=None, description="Device memory that a client may use, on each device."
    )
    default_per_device_pinned_memory_limit: Annotated[dict[str, Limit], _absent({}, dict[str, Limit])] = Field(
        default_factory=dict, description="The same for single devices: by request, by UUID, or by index among all."
    )
    multi_user: Annotated[Switch, _absent(False, bool)] = Field(
        default=False, description="Let processes of several users be clients (Volta and later)."
    )


class _Sharing(_Part):
    strategy: Strategy
    mps_config: MpsConfig | None = None

    @property
    def mps(self) -> MpsConfig | None:
        """The limits where the strategy is MPS, with defaults where none are given; else None."""
        return (self.mps_config or MpsConfig()) if self.strategy == "MPS" else None

    @model_validator(mode="after")
    def _fits_strategy(self) -> Self:
        if self.mps_config is not None and self.strategy != "MPS":
            raise ValueError(f"mpsConfig does not go with strategy {self.strategy}")
        return self


class MigSharing(_Sharing):
    """How processes share a MIG device."""


class GpuSharing(_Sharing):
    """How processes share a GPU."""

    time_slicing_config: TimeSlicingConfig | None = None

    @property
    def interval(self) -> Interval | None:
        """The time slice where the strategy is TimeSlicing, else None."""
        return (self.time_slicing_config or TimeSlicingConfig()).interval if self.strategy == "TimeSlicing" else None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.time_slicing_config is not None and self.strategy != "TimeSlicing":
            raise ValueError(f"timeSlicingConfig does not go with strategy {self.strategy}")
        return self


class GpuConfig(OpaqueConfig, api_version=API_VERSION):
    """Configuration of whole GPUs. Without `sharing` nothing is changed on the GPU."""

    sharing: GpuSharing | None = None


class MigDeviceConfig(OpaqueConfig, api_version=API_VERSION):
    """Configuration of MIG devices. They have no time slices of their own, so TimeSlicing changes nothing."""

    sharing: MigSharing | None = None


class Iommu(_Part):
    """By which interface a virtual machine gets the GPU."""

    backend_policy: Annotated[BackendPolicy, _absent("LegacyOnly", BackendPolicy)] = "LegacyOnly"
    enable_api_device: Annotated[Switch, _absent(False, bool)] = Field(default=False, alias="enableAPIDevice")


class VfioDeviceConfig(OpaqueConfig, api_version=API_VERSION):
    """Configuration of GPUs that are passed through."""

    iommu: Annotated[Iommu, _absent({}, Iommu)] = Field(default_factory=Iommu)


CONFIGS: Final[tuple[type[OpaqueConfig], ...]] = (GpuConfig, MigDeviceConfig, VfioDeviceConfig)
"""The first is what the SDK fills in where a claim brings no configuration."""
