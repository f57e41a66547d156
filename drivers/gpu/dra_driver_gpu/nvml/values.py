"""What NVML tells, as values: enumerations, profiles, placements, processes, events. No I/O.

Numbers are NVML's own (nvml.h). Sizes say their unit in the name: `_bytes`, or `_mib` for MiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final, TypeVar

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


class RecoveryAction(IntEnum):
    """What the driver says must happen before the GPU works again (field `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`)."""

    NONE = 0
    GPU_RESET = 1
    NODE_REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4
    RECOVER_IMEX_DOMAIN = 5
    BUS_RESET = 6
    SYSTEM_REBOOT = 7


class EccKind(IntEnum):
    """`nvmlMemoryErrorType_t`."""

    CORRECTED = 0
    UNCORRECTED = 1


class EccCounter(IntEnum):
    """`nvmlEccCounterType_t`: since the driver was loaded, or ever."""

    VOLATILE = 0
    AGGREGATE = 1


class EventType(IntFlag):
    """The events that a set can be registered for."""

    SINGLE_BIT_ECC_ERROR = 0x1
    DOUBLE_BIT_ECC_ERROR = 0x2
    PSTATE = 0x4
    XID_CRITICAL_ERROR = 0x8
    CLOCK = 0x10
    POWER_SOURCE_CHANGE = 0x80
    MIG_CONFIG_CHANGE = 0x100


class GpuInstanceProfileKind(IntEnum):
    """`NVML_GPU_INSTANCE_PROFILE_*`: what a GPU is asked about; the id of a profile is another number."""

    SLICE_1 = 0
    SLICE_2 = 1
    SLICE_3 = 2
    SLICE_4 = 3
    SLICE_7 = 4
    SLICE_8 = 5
    SLICE_6 = 6
    SLICE_1_REV1 = 7
    SLICE_2_REV1 = 8
    SLICE_1_REV2 = 9
    SLICE_1_GFX = 10
    SLICE_2_GFX = 11
    SLICE_4_GFX = 12
    SLICE_1_NO_ME = 13
    SLICE_2_NO_ME = 14
    SLICE_1_ALL_ME = 15
    SLICE_2_ALL_ME = 16
    SLICE_3_GFX = 17


class ComputeInstanceProfileKind(IntEnum):
    """`NVML_COMPUTE_INSTANCE_PROFILE_*`."""

    SLICE_1 = 0
    SLICE_2 = 1
    SLICE_3 = 2
    SLICE_4 = 3
    SLICE_7 = 4
    SLICE_8 = 5
    SLICE_6 = 6
    SLICE_1_REV1 = 7
    SLICE_7_NVL = 8


@dataclass(frozen=True)
class MigMode:
    """Whether MIG is on, and whether it will be after the next reset."""

    current: bool
    pending: bool


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
class FabricInfo:
    """Membership of an NVLink fabric: `state` 3 is completed, `status` the NVML return code of the last probe."""

    cluster_uuid: str
    clique_id: int
    state: int
    status: int


@dataclass(frozen=True)
class RemappedRows:
    """Memory rows that were replaced by spares; `pending` needs a reset, `failed` a new GPU."""

    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool


@dataclass(frozen=True)
class Process:
    """A process with a context on the GPU; `used_bytes` is None where the driver cannot tell.

    The instance ids are `WHOLE_GPU` where MIG is off.
    """

    pid: int
    used_bytes: int | None = None
    gpu_instance_id: int = WHOLE_GPU
    compute_instance_id: int = WHOLE_GPU


@dataclass(frozen=True, order=True)
class Placement:
    """Slices [start, start + size): of memory for a GPU instance, of compute for a compute instance."""

    start: int
    size: int

    def overlaps(self, other: Placement) -> bool:
        """Whether both have a slice in common."""
        return self.start < other.start + other.size and other.start < self.start + self.size


@dataclass(frozen=True)
class GpuInstanceProfile:
    """A size in which a GPU can be cut.

    `kind` is what was asked for, `id` the number that creating takes. `name` is the driver's, such as `1g.5gb+me`,
    empty where it is too old to tell. `slices` counts compute slices, `instances` how many fit on an empty GPU.
    """

    kind: GpuInstanceProfileKind
    id: int
    name: str
    slices: int
    instances: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    memory_mib: int
    p2p: bool = False

    @property
    def graphics(self) -> bool:
        """Whether graphics APIs work in it; such profiles are kinds of their own."""
        return self.kind in _GRAPHICS


_GRAPHICS: Final = frozenset(kind for kind in GpuInstanceProfileKind if kind.name.endswith("_GFX"))


@dataclass(frozen=True)
class ComputeInstanceProfile:
    """A size in which a GPU instance can be cut; engines are shared by its compute instances."""

    kind: ComputeInstanceProfileKind
    id: int
    name: str
    slices: int
    instances: int
    multiprocessors: int
    shared_copy_engines: int
    shared_decoders: int
    shared_encoders: int
    shared_jpeg_engines: int
    shared_ofa_engines: int


@dataclass(frozen=True)
class MigAttributes:
    """What one MIG device has (`nvmlDeviceGetAttributes_v2`)."""

    multiprocessors: int
    shared_copy_engines: int
    shared_decoders: int
    shared_encoders: int
    shared_jpeg_engines: int
    shared_ofa_engines: int
    gpu_instance_slices: int
    compute_instance_slices: int
    memory_mib: int


_Enum = TypeVar("_Enum", bound=IntEnum)


def known(kind: type[_Enum], number: int, otherwise: _Enum) -> _Enum:
    """The member of `kind` with this number, or `otherwise` where a newer driver tells a number not listed here."""
    try:
        return kind(number)
    except ValueError:
        return otherwise
