"""What is to be done for a claim: each device with its kind, its GPU and the configuration that applies to it. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from dra_driver_gpu.config import GpuConfig, Interval, MigDeviceConfig, MpsConfig, VfioDeviceConfig
from dra_driver_gpu.describe.names import NAME, MigName, parse_gpu_name, parse_mig_name, parse_vfio_name
from dra_sdk import AllocatedDevice, Claim, ConfigError, OpaqueConfig, PermanentError
from dra_sdk.hardware import PCI_BUS_ID

log = logging.getLogger(__name__)
Allocated = AllocatedDevice[Any]
JSON = dict[str, Any]


class Kind(Enum):
    """What a device is; the value is its attribute `type`."""

    GPU = "gpu"
    MIG = "mig"
    VFIO = "vfio"


_CONFIGS: Final[dict[Kind, type[OpaqueConfig]]] = {
    Kind.GPU: GpuConfig,
    Kind.MIG: MigDeviceConfig,
    Kind.VFIO: VfioDeviceConfig,
}
_KINDS: Final = {config.kind: kind for kind, config in _CONFIGS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One device of a claim.

    `group` is the same for the devices that one entry of configuration applies to, None where nobody configured
    anything. `mig` is what the name of a MIG device says.
    """

    device: Allocated
    kind: Kind
    config: OpaqueConfig
    group: int | None = None
    mig: MigName | None = None

    @property
    def admin(self) -> bool:
        """Whether the claim may look at the device and must not change it."""
        return self.device.admin_access

    @property
    def gpu_uuid(self) -> str:
        """The GPU's UUID as published; empty for VFIO, where NVML does not know it."""
        name = "parentUUID" if self.kind is Kind.MIG else "uuid"
        return self._attribute(name) if self.kind is not Kind.VFIO else ""

    @property
    def pci_address(self) -> str:
        """The GPU's PCI address as published, where sysfs showed it."""
        return self._attribute(PCI_BUS_ID)

    @property
    def graphics(self) -> bool:
        """Whether it is a MIG device that graphics work on."""
        return self._attribute("profile").endswith("+gfx")

    @property
    def mps(self) -> MpsConfig | None:
        """The limits of its MPS daemon, if it is to have one."""
        if isinstance(self.config, GpuConfig | MigDeviceConfig) and self.config.sharing is not None:
            return self.config.sharing.mps
        return None

    @property
    def interval(self) -> Interval | None:
        """The time slice that is asked for, None for none; MIG devices have none."""
        sharing = self.config.sharing if isinstance(self.config, GpuConfig) else None
        return None if sharing is None else sharing.interval

    @property
    def policy(self) -> JSON:
        """What is to be changed on it, in a form that can be compared and kept; empty for nothing.

        What is left out of a configuration is the same as its default.
        """
        if self.mps is not None:
            return {"strategy": "MPS", "mpsConfig": self.mps.model_dump(mode="json", by_alias=True, exclude_none=True)}
        if self.interval is not None:
            return {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": self.interval}}
        return {}

    def _attribute(self, name: str) -> str:
        attributes = self.device.device.attributes if self.device.device else {}
        return str(attributes.get(name, ""))


def plan(claim: Claim[Any]) -> list[Wanted]:
    """The devices in allocation order. ConfigError where configuration is of the wrong kind for a device it names."""
    wanted = [_wanted(device) for device in claim.devices]
    entries = list(_entries(claim.raw))
    for label, entry in entries:
        kind = _KINDS[entry["opaque"]["parameters"]["kind"]]
        for each in wanted:
            if each.device.request in (entry.get("requests") or ()) and each.kind is not kind:
                right = _CONFIGS[each.kind].kind
                raise ConfigError(
                    f"{label}: {_CONFIGS[kind].kind} cannot apply to device {each.device.name} of request "
                    f"{each.device.request}, which takes a {right}"
                )
        if kind not in {each.kind for each in wanted}:
            log.warning("%s: %s: %s applies to none of its devices", claim, label, _CONFIGS[kind].kind)
    return wanted


def mps_groups(wanted: Sequence[Wanted]) -> list[list[Wanted]]:
    """The devices that share an MPS daemon: those that one entry of configuration applies to."""
    groups: dict[int | None, list[Wanted]] = {}
    for each in wanted:
        if each.mps is not None and not each.admin:
            groups.setdefault(each.group, []).append(each)
    return list(groups.values())


def _wanted(device: Allocated) -> Wanted:
    name = device.name
    if (mig := parse_mig_name(name)) is not None:
        return _configured(device, Kind.MIG, mig)
    if parse_gpu_name(name) is not None:
        return _configured(device, Kind.GPU)
    if parse_vfio_name(name) is not None:
        return _configured(device, Kind.VFIO)
    raise PermanentError(f"device {name} is none of this driver's: names are gpu-N, gpu-N-mig-… and gpu-vfio-N")


def _configured(device: Allocated, kind: Kind, mig: MigName | None = None) -> Wanted:
    """Of the configuration that matches the request, the last of the right kind."""
    fitting = [config for config in device.configs if isinstance(config, _CONFIGS[kind])]
    config = fitting[-1] if fitting else _CONFIGS[kind]()
    return Wanted(device=device, kind=kind, config=config, group=id(config) if fitting else None, mig=mig)


def _entries(raw: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The entries of this driver in a claim's allocation; each was decoded before, so its kind is known."""
    allocation = raw.get("status", {}).get("allocation") or {}
    for index, entry in enumerate(allocation.get("devices", {}).get("config") or ()):
        if (entry.get("opaque") or {}).get("driver") == NAME:
            yield f"config[{index}] of the allocation", entry
