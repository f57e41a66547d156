"""What can be read of a GPU at any time: error counters, remapped rows, and what the driver says is to be done."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dra_driver_gpu.nvml.api import Gpu
from dra_driver_gpu.nvml.errors import (
    FunctionNotFoundError,
    GpuIsLostError,
    NotSupportedError,
    NvmlError,
    ResetRequiredError,
)
from dra_driver_gpu.nvml.values import EccCounter, EccKind, RecoveryAction, RemappedRows

log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a GPU. None is what the GPU or its driver does not tell, or not this time.

    The counters are of memory errors since the driver was loaded or the GPU was reset.
    """

    action: RecoveryAction | None = None
    rows: RemappedRows | None = None
    uncorrected: int | None = None
    corrected: int | None = None


def read(gpu: Gpu) -> Reading:
    """Look at a GPU. Raises GpuIsLostError, ResetRequiredError; any other failure leaves out what was asked for."""
    return Reading(
        action=_told(gpu.recovery_action),
        rows=_told(gpu.remapped_rows),
        uncorrected=_told(lambda: gpu.ecc_errors(EccKind.UNCORRECTED, EccCounter.VOLATILE)),
        corrected=_told(lambda: gpu.ecc_errors(EccKind.CORRECTED, EccCounter.VOLATILE)),
    )


def _told(ask: Callable[[], _T]) -> _T | None:
    try:
        return ask()
    except (GpuIsLostError, ResetRequiredError):
        raise
    except (NotSupportedError, FunctionNotFoundError):
        return None
    except NvmlError as error:
        log.debug("left out of a GPU's health: %s", error)
        return None
