"""The plan for a claim: each device with its kind, its GPU and the configuration that applies to it. Pure."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dra_driver_gpu.config import GpuConfig, Interval, MigDeviceConfig, MpsConfig, VfioDeviceConfig
from dra_driver_gpu.describe.devices import GpuDevice, GpuKind, MigPlace
from dra_sdk import AllocatedDevice, Claim, ConfigError, OpaqueConfig

log = logging.getLogger(__name__)


_CONFIGS: Final[dict[GpuKind, type[OpaqueConfig]]] = {
    GpuKind.GPU: GpuConfig,
    GpuKind.MIG: MigDeviceConfig,
    GpuKind.VFIO: VfioDeviceConfig,
}
_KINDS: Final = {config.kind: kind for kind, config in _CONFIGS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDevice:
    """One device of a claim.

    device: the device as the scheduler allocated it.
    hardware: what discovery attached to it.
    config: the configuration that applies to it.
    group: the same for all devices to which one entry of configuration applies; None without an entry.
    """

    device: AllocatedDevice[Any]
    hardware: GpuDevice
    config: OpaqueConfig
    group: int | None = None

    @property
    def kind(self) -> GpuKind:
        """What it is."""
        return self.hardware.kind

    @property
    def mig(self) -> MigPlace | None:
        """Which MIG device of its GPU it is; None for other kinds."""
        return self.hardware.mig

    @property
    def admin(self) -> bool:
        """Whether the claim has admin access: it may monitor the device and must not change it."""
        return self.device.admin_access

    @property
    def mps(self) -> MpsConfig | None:
        """The limits of its MPS daemon; None without MPS."""
        if isinstance(self.config, GpuConfig | MigDeviceConfig) and self.config.sharing is not None:
            return self.config.sharing.mps
        return None

    @property
    def interval(self) -> Interval | None:
        """The time slice that is requested; None without one, and for MIG devices, which have none."""
        sharing = self.config.sharing if isinstance(self.config, GpuConfig) else None
        return None if sharing is None else sharing.interval

    @property
    def policy(self) -> dict[str, Any]:
        """What changes on the device, in a form that can be compared and kept; empty if nothing does.

        What a configuration leaves out equals its default.
        """
        if self.mps is not None:
            return {"strategy": "MPS", "mpsConfig": self.mps.model_dump(mode="json", by_alias=True, exclude_none=True)}
        if self.interval is not None:
            return {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": self.interval}}
        return {}


def make_plan(claim: Claim[Any]) -> list[PlannedDevice]:
    """Return the devices in the order of the allocation.

    Raises ConfigError if an entry of configuration names a request whose devices take another kind; a wrong kind that
    names no request is logged.
    """
    planned = [_plan(device) for device in claim.devices]
    for entry in claim.configs:
        kind = _KINDS[entry.kind]
        for device in planned:
            if device.device.request in entry.requests and device.kind is not kind:
                raise ConfigError(
                    f"{entry.label}: {_CONFIGS[kind].kind} cannot apply to device {device.device.name} of request "
                    f"{device.device.request}, which takes a {_CONFIGS[device.kind].kind}"
                )
        if kind not in {device.kind for device in planned}:
            log.warning("%s: %s: %s applies to none of its devices", claim, entry.label, _CONFIGS[kind].kind)
    return planned


def mps_groups(planned: Sequence[PlannedDevice]) -> list[list[PlannedDevice]]:
    """Return the devices with MPS, grouped by the entry of configuration that applies to them."""
    groups: dict[int | None, list[PlannedDevice]] = {}
    for device in planned:
        if device.mps is not None and not device.admin:
            groups.setdefault(device.group, []).append(device)
    return list(groups.values())


def _plan(device: AllocatedDevice[Any]) -> PlannedDevice:
    """Plan a device: of the configurations that match the request, the last of the right kind applies."""
    hardware: GpuDevice = device.hardware
    wanted = _CONFIGS[hardware.kind]
    config = device.config_of(wanted)
    group = None if config is None else id(config)
    return PlannedDevice(device=device, hardware=hardware, config=config or wanted(), group=group)
