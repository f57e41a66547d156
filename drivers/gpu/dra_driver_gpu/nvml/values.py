"""What NVML reports about a GPU: modes, memory, PCI location, processes, health. MIG's values are in `mig`.

Numbers are those of nvml.h. A size has its unit in the name: `_bytes`, or `_mib` for MiB. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

WHOLE_GPU: Final = 0xFFFFFFFF
"""The GPU instance id and compute instance id of an event or a process that belongs to no MIG device."""


class Brand(IntEnum):
    """`nvmlBrandType_t`. `label` is the published name."""

    UNKNOWN = 0
    QUADRO = 1
    TESLA = 2
    NVS = 3
    GRID = 4
    GEFORCE = 5
    TITAN = 6
    NVIDIA_VAPPS = 7
    NVIDIA_VPC = 8
    NVIDIA_VCS = 9
    NVIDIA_VWS = 10
    NVIDIA_CLOUD_GAMING = 11
    QUADRO_RTX = 12
    NVIDIA_RTX = 13
    NVIDIA = 14
    GEFORCE_RTX = 15
    TITAN_RTX = 16

    @property
    def label(self) -> str:
        """The value of the attribute `brand`, such as `Nvidia`."""
        return _BRAND_LABELS[self]


_BRAND_LABELS: Final = {
    Brand.UNKNOWN: "Unknown",
    Brand.QUADRO: "Quadro",
    Brand.TESLA: "Tesla",
    Brand.NVS: "NVS",
    Brand.GRID: "Grid",
    Brand.GEFORCE: "GeForce",
    Brand.TITAN: "Titan",
    Brand.NVIDIA_VAPPS: "NvidiaVApps",
    Brand.NVIDIA_VPC: "NvidiaVPC",
    Brand.NVIDIA_VCS: "NvidiaVCS",
    Brand.NVIDIA_VWS: "NvidiaVWS",
    Brand.NVIDIA_CLOUD_GAMING: "NvidiaCloudGaming",
    Brand.QUADRO_RTX: "QuadroRTX",
    Brand.NVIDIA_RTX: "NvidiaRTX",
    Brand.NVIDIA: "Nvidia",
    Brand.GEFORCE_RTX: "GeForceRTX",
    Brand.TITAN_RTX: "TitanRTX",
}


class Architecture(IntEnum):
    """`nvmlDeviceArchitecture_t`. `label` is the published name."""

    KEPLER = 2
    MAXWELL = 3
    PASCAL = 4
    VOLTA = 5
    TURING = 6
    AMPERE = 7
    ADA = 8
    HOPPER = 9
    BLACKWELL = 10
    RUBIN = 13
    UNKNOWN = 0xFFFFFFFF

    @property
    def label(self) -> str:
        """The value of the attribute `architecture`, such as `Ada Lovelace`."""
        return "Ada Lovelace" if self is Architecture.ADA else self.name.capitalize()

    @property
    def toggles_mig_live(self) -> bool:
        """Whether MIG can be turned on and off without a reset of the GPU: from Hopper on."""
        return Architecture.HOPPER <= self < Architecture.UNKNOWN


class AddressingMode(IntEnum):
    """How the GPU reaches pageable system memory (`nvmlDeviceGetAddressingMode`)."""

    NONE = 0
    HMM = 1
    ATS = 2

    @property
    def label(self) -> str:
        """The value of the attribute `addressingMode`: `None`, `HMM` or `ATS`."""
        return "None" if self is AddressingMode.NONE else self.name


class VirtualizationMode(IntEnum):
    """`nvmlGpuVirtualizationMode_t`: whether this process sees a real GPU, and what else uses it."""

    NONE = 0
    PASSTHROUGH = 1
    VGPU = 2
    HOST_VGPU = 3
    HOST_VSGA = 4


class ComputeMode(IntEnum):
    """`nvmlComputeMode_t`: how many processes may have a context on the GPU."""

    DEFAULT = 0
    PROHIBITED = 2
    EXCLUSIVE_PROCESS = 3


@dataclass(frozen=True)
class MemoryInfo:
    """The memory of a GPU or a MIG device (`nvmlMemory_v2_t`).

    total_bytes: all of it.
    free_bytes: what can be allocated.
    used_bytes: what processes have allocated.
    reserved_bytes: what driver and firmware keep; 0 if the driver does not report it (before R510).
    """

    total_bytes: int
    free_bytes: int
    used_bytes: int
    reserved_bytes: int = 0


@dataclass(frozen=True)
class PciInfo:
    """The PCI location of a GPU (`nvmlPciInfo_t`).

    bus_id: the address as NVML writes it, such as `00000000:65:00.0`.
    domain: PCI domain.
    bus: PCI bus.
    device: PCI device (slot).
    device_id: `pciDeviceId`, with the device id in the upper and the vendor id in the lower 16 bits.
    subsystem_id: `pciSubSystemId`.
    """

    bus_id: str
    domain: int
    bus: int
    device: int
    device_id: int
    subsystem_id: int

    @property
    def address(self) -> str:
        """The address as sysfs writes it, such as `0000:65:00.0`: four digits of domain, more only where needed."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.0"

    @property
    def product_id(self) -> int:
        """The PCI device id, such as 0x20b0."""
        return self.device_id >> 16


@dataclass(frozen=True)
class GpuProcess:
    """A process with a context on the GPU (`nvmlProcessInfo_t`).

    pid: its process id.
    used_bytes: GPU memory that it uses; None if the driver does not report it.
    gpu_instance_id: its GPU instance; `WHOLE_GPU` if MIG is off.
    compute_instance_id: its compute instance; `WHOLE_GPU` if MIG is off.
    """

    pid: int
    used_bytes: int | None = None
    gpu_instance_id: int = WHOLE_GPU
    compute_instance_id: int = WHOLE_GPU


class RecoveryAction(IntEnum):
    """What must happen before the GPU works again (field `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`).

    UNKNOWN stands for an action that only a newer driver knows: something must happen.
    """

    NONE = 0
    GPU_RESET = 1
    NODE_REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4
    RECOVER_IMEX_DOMAIN = 5
    BUS_RESET = 6
    SYSTEM_REBOOT = 7
    UNKNOWN = 0xFFFFFFFF


class EccKind(IntEnum):
    """`nvmlMemoryErrorType_t`."""

    CORRECTED = 0
    UNCORRECTED = 1


class EccCounter(IntEnum):
    """`nvmlEccCounterType_t`: errors since the driver was loaded, or in the GPU's lifetime."""

    VOLATILE = 0
    AGGREGATE = 1


class EventType(IntFlag):
    """`nvmlEventType*`: the events that an event set can be registered for."""

    SINGLE_BIT_ECC_ERROR = 0x1
    DOUBLE_BIT_ECC_ERROR = 0x2
    PSTATE = 0x4
    XID_CRITICAL_ERROR = 0x8
    CLOCK = 0x10
    POWER_SOURCE_CHANGE = 0x80
    MIG_CONFIG_CHANGE = 0x100


@dataclass(frozen=True)
class RemappedRows:
    """Memory rows that spare rows replace (`nvmlDeviceGetRemappedRows`).

    correctable: rows remapped because of correctable errors.
    uncorrectable: rows remapped because of uncorrectable errors.
    pending: a row will be remapped at the next reset.
    failed: no spare row was left; the GPU must be replaced.
    """

    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool
