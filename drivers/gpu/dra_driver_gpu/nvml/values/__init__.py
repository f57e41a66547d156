"""What NVML tells, as values: enumerations, profiles, placements, processes, events. No I/O.

Numbers are NVML's own (nvml.h). Sizes say their unit in the name: `_bytes`, or `_mib` for MiB.
"""

from dra_driver_gpu.nvml.values.gpu import (
    WHOLE_GPU,
    AddressingMode,
    Architecture,
    Brand,
    ComputeMode,
    MemoryInfo,
    PciInfo,
    Process,
    VirtualizationMode,
)
from dra_driver_gpu.nvml.values.health import (
    EccCounter,
    EccKind,
    EventType,
    RecoveryAction,
    RemappedRows,
)
from dra_driver_gpu.nvml.values.mig import (
    ComputeInstanceProfile,
    ComputeInstanceProfileKind,
    GpuInstanceProfile,
    GpuInstanceProfileKind,
    MigAttributes,
    MigMode,
    Placement,
)

__all__ = [
    "WHOLE_GPU",
    "AddressingMode",
    "Architecture",
    "Brand",
    "ComputeInstanceProfile",
    "ComputeInstanceProfileKind",
    "ComputeMode",
    "EccCounter",
    "EccKind",
    "EventType",
    "GpuInstanceProfile",
    "GpuInstanceProfileKind",
    "MemoryInfo",
    "MigAttributes",
    "MigMode",
    "PciInfo",
    "Placement",
    "Process",
    "RecoveryAction",
    "RemappedRows",
    "VirtualizationMode",
]
