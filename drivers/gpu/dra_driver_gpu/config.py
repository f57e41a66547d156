"""What a user may configure: GpuConfig, MigDeviceConfig and VfioDeviceConfig of `resource.nvidia.com/v1beta1`.

Names, defaults and checks are those on which existing claims rely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from dra_sdk import CelRule, ConfigError, OpaqueConfig, Quantity
from dra_sdk.hardware.vfio import Iommu, IommuField

API_VERSION: Final = "resource.nvidia.com/v1beta1"
LARGEST_LIMIT: Final = Quantity("1Pi")
"""The largest memory limit: a thousand times the memory of today's GPUs, and in MiB still a 32-bit integer for MPS."""
_MIB: Final = 1 << 20

Interval = Literal["Default", "Short", "Medium", "Long"]
Strategy = Literal["TimeSlicing", "MPS"]
INTERVALS: Final[dict[Interval, int]] = {"Default": 0, "Short": 1, "Medium": 2, "Long": 3}
"""Time slices, with their numbers for nvidia-smi."""


def _limit(value: Any) -> Any:
    """Check a memory limit: MPS takes whole MiB, so at least 1Mi, and at most `LARGEST_LIMIT`."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("must be a quantity such as 10Gi")  # noqa: TRY004 (pydantic turns ValueErrors into its own)
    amount = Quantity(value)
    if amount < _MIB:
        raise ValueError("must be at least 1Mi")
    if amount > LARGEST_LIMIT:
        raise ValueError(f"must be at most {LARGEST_LIMIT}, which is more than any GPU has")
    return str(value)


Limit = Annotated[str, BeforeValidator(_limit, json_schema_input_type=str | int), Field(examples=["10Gi", "1Mi"])]
Percentage = Annotated[int, Field(ge=0, le=100, strict=True)]
Switch = Annotated[bool, Field(strict=True)]


def _null_is(default: Any, kind: Any) -> BeforeValidator:
    """`null` means the default, as for every optional field of Kubernetes; `kind` is the type of other values."""
    return BeforeValidator(lambda value: default if value is None else value, json_schema_input_type=kind | None)


class _ConfigPart(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class TimeSlicingConfig(_ConfigPart):
    """How long a process may compute before the next one gets its turn."""

    interval: Annotated[Interval, _null_is("Default", Interval)] = "Default"


class MpsConfig(_ConfigPart):
    """Limits of each client of a claim's MPS daemon."""

    default_active_thread_percentage: Percentage | None = Field(
        default=None, description="Share of the multiprocessors that a client may use, in percent."
    )
    default_pinned_device_memory_limit: Limit | None = Field(
        default=None, description="Device memory that a client may use, on each device, from 1Mi to 1Pi."
    )
    default_per_device_pinned_memory_limit: Annotated[dict[str, Limit], _null_is({}, dict[str, Limit])] = Field(
        default_factory=dict,
        description="The same for single devices: by request, by UUID, or by index in the order of UUIDs.",
    )
    multi_user: Annotated[Switch, _null_is(False, bool)] = Field(
        default=False, description="Let processes of several users be clients (Volta and later)."
    )


class _Sharing(_ConfigPart):
    strategy: Strategy
    mps_config: MpsConfig | None = None

    @property
    def mps(self) -> MpsConfig | None:
        """The limits if the strategy is MPS, by default none; else None."""
        return (self.mps_config or MpsConfig()) if self.strategy == "MPS" else None

    @model_validator(mode="after")
    def _mps_config_fits(self) -> Self:
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
        """The time slice if the strategy is TimeSlicing, else None."""
        return (self.time_slicing_config or TimeSlicingConfig()).interval if self.strategy == "TimeSlicing" else None

    @model_validator(mode="after")
    def _time_slicing_config_fits(self) -> Self:
        if self.time_slicing_config is not None and self.strategy != "TimeSlicing":
            raise ValueError(f"timeSlicingConfig does not go with strategy {self.strategy}")
        return self


_MPS_CONFIG_FITS: Final = CelRule(
    '!has(self.sharing) || !has(self.sharing.mpsConfig) || self.sharing.strategy == "MPS"',
    "sharing.mpsConfig goes with strategy MPS only",
)


class GpuConfig(OpaqueConfig, api_version=API_VERSION):
    """Configuration of whole GPUs. Without `sharing` nothing changes on the GPU."""

    sharing: GpuSharing | None = None

    cel_rules = (
        _MPS_CONFIG_FITS,
        CelRule(
            '!has(self.sharing) || !has(self.sharing.timeSlicingConfig) || self.sharing.strategy == "TimeSlicing"',
            "sharing.timeSlicingConfig goes with strategy TimeSlicing only",
        ),
    )


class MigDeviceConfig(OpaqueConfig, api_version=API_VERSION):
    """Configuration of MIG devices. They have no time slices of their own, so TimeSlicing changes nothing."""

    sharing: MigSharing | None = None

    cel_rules = (_MPS_CONFIG_FITS,)


class VfioDeviceConfig(OpaqueConfig, api_version=API_VERSION):
    """Configuration of GPUs for virtual machines."""

    iommu: IommuField = Field(default_factory=Iommu)


CONFIGS: Final[tuple[type[OpaqueConfig], ...]] = (GpuConfig, MigDeviceConfig, VfioDeviceConfig)
"""The SDK uses the first for a claim without configuration."""


def memory_limits(config: MpsConfig, devices: Mapping[str, str]) -> dict[str, str]:
    """Return the memory limit of each device that has one, by UUID, in MiB as MPS takes it, such as `953M`.

    devices: the request (`request` or `request/subrequest`) of each device to which the configuration applies, by UUID.

    A limit for one request overrides the limit for all; a limit for an index or a UUID overrides both. Indices count
    the devices in the order of UUIDs. Raises ConfigError for a limit that names none of the devices.
    """
    by_uuid = sorted(devices)
    limits = dict.fromkeys(by_uuid, config.default_pinned_device_memory_limit)
    single = config.default_per_device_pinned_memory_limit
    for selector, limit in sorted(single.items(), key=lambda item: not _of_request(item[0], devices)):
        for uuid in _selected(selector, by_uuid, devices):
            limits[uuid] = limit
    return {uuid: f"{int(Quantity(limit).value // _MIB)}M" for uuid, limit in limits.items() if limit is not None}


def _of_request(selector: str, devices: Mapping[str, str]) -> list[str]:
    return [uuid for uuid, request in devices.items() if selector in {request, _base(request)}]


def _selected(selector: str, by_uuid: Sequence[str], devices: Mapping[str, str]) -> list[str]:
    if selector in by_uuid:
        return [selector]
    if named := _of_request(selector, devices):
        return named
    if selector.isdecimal() and int(selector) < len(by_uuid):
        return [by_uuid[int(selector)]]
    requests = sorted({_base(request) for request in devices.values()})
    raise ConfigError(
        f"defaultPerDevicePinnedMemoryLimit: {selector!r} is none of requests {', '.join(requests)}, none of indices 0 "
        f"to {len(by_uuid) - 1}, and none of UUIDs {', '.join(by_uuid)}"
    )


def _base(request: str) -> str:
    return request.partition("/")[0]
