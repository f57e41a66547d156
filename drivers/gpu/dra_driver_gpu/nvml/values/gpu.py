"""What a GPU is, which modes it has, and who uses it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

WHOLE_GPU: Final = 0xFFFFFFFF
"""The GPU instance id and compute instance id of an event or a process that is not of a MIG device."""


class Brand(IntEnum):
    """`nvmlBrandType_t`; `label` is the name that is published."""

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
        """The name as the attribute `brand` has it, such as `Nvidia`."""
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
    """`nvmlDeviceArchitecture_t`; `label` is the name that is published."""

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
        """The name as the attribute `architecture` has it, such as `Ada Lovelace`."""
        return "Ada Lovelace" if self is Architecture.ADA else self.name.capitalize()


class AddressingMode(IntEnum):
    """How the GPU reaches pageable system memory (`nvmlDeviceGetAddressingMode`)."""

    NONE = 0
    HMM = 1
    ATS = 2

    @property
    def label(self) -> str:
        """The name as the attribute `addressingMode` has it: `None`, `HMM` or `ATS`."""
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
    """Memory of a GPU or a MIG device; `reserved_bytes` is what driver and firmware keep, 0 where not told."""

    total_bytes: int
    free_bytes: int
    used_bytes: int
    reserved_bytes: int = 0


@dataclass(frozen=True)
class PciInfo:
    """Where a GPU sits: `bus_id` in NVML's spelling (`00000000:65:00.0`), `address` in sysfs's (`0000:65:00.0`)."""

    bus_id: str
    domain: int
    bus: int
    device: int
    device_id: int
    subsystem_id: int

    @property
    def address(self) -> str:
        """The address as sysfs spells it: four digits of domain (more only where needed), lower case."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.0"

    @property
    def product_id(self) -> int:
        """The PCI device id, such as 0x20b0: the upper half of NVML's `pciDeviceId`."""
        return self.device_id >> 16

    @property
    def vendor_id(self) -> int:
        """The PCI vendor id: the lower half of NVML's `pciDeviceId`."""
        return self.device_id & 0xFFFF


@dataclass(frozen=True)
class Process:
    """A process with a context on the GPU; `used_bytes` is None where the driver cannot tell.

    The instance ids are `WHOLE_GPU` where MIG is off.
    """

    pid: int
    used_bytes: int | None = None
    gpu_instance_id: int = WHOLE_GPU
    compute_instance_id: int = WHOLE_GPU
