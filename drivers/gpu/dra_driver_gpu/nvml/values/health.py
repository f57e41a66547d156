"""What is wrong with a GPU, and the events that tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag


class RecoveryAction(IntEnum):
    """What the driver says must happen before the GPU works again (field `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`).

    UNKNOWN is any that a newer driver names: that something must happen is certain.
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


@dataclass(frozen=True)
class RemappedRows:
    """Memory rows that were replaced by spares; `pending` needs a reset, `failed` a new GPU."""

    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool
