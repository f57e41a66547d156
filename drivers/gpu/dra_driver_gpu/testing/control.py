"""What a test does to GPUs behind the driver's back, the same for GPUs in memory and GPUs of the stub library."""

from __future__ import annotations

from typing import Protocol

from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.memory import ProcessKind
from dra_driver_gpu.nvml.values import WHOLE_GPU, EccCounter, EccKind, EventType, RecoveryAction, RemappedRows


class GpuControl(Protocol):
    """Implemented by `MemoryNvml` and `StubState`; GPUs are named by UUID."""

    def fail(self, call: str, failure: ReturnCode, *, nth: int = 1, times: int = 1, after: bool = False) -> None:
        """Lets the `nth` call of an NVML function fail, and `times` - 1 after it; `after` it took effect if asked."""

    def add_process(
        self,
        uuid: str,
        pid: int,
        *,
        used_bytes: int | None = None,
        gpu_instance_id: int = WHOLE_GPU,
        compute_instance_id: int = WHOLE_GPU,
        kind: ProcessKind = ProcessKind.COMPUTE,
    ) -> None:
        """Starts a process on a GPU, or on one of its MIG devices."""

    def end_process(self, pid: int) -> None:
        """Ends a process on every GPU."""

    def happen(
        self,
        uuid: str,
        event: EventType,
        data: int = 0,
        *,
        gpu_instance_id: int = WHOLE_GPU,
        compute_instance_id: int = WHOLE_GPU,
    ) -> None:
        """Gives an event to every event set that is registered for it now."""

    def lose(self, uuid: str) -> None:
        """Lets a GPU fall off the bus: every call on it fails until it recovers."""

    def recover(self, uuid: str) -> None:
        """Resets a GPU, which brings it back without instances and processes."""

    def set_ecc_errors(self, uuid: str, kind: EccKind, counter: EccCounter, count: int) -> None:
        """Sets an ECC counter."""

    def set_remapped_rows(self, uuid: str, rows: RemappedRows) -> None:
        """Sets the numbers of remapped rows."""

    def set_recovery_action(self, uuid: str, action: RecoveryAction) -> None:
        """Sets what the driver says must happen to the GPU."""
