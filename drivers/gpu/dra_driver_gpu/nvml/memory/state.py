"""The state of one GPU in memory, and the rules of MIG on it. Pure: no locks, no handles, no faults.

A refusal is a `Refusal` with NVML's return code; the caller knows which function was called.
Sources: the MIG user guide for placements and sharing, nvml.h for the return codes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.memory.models import FakeGpu, compute_instance_profiles
from dra_driver_gpu.nvml.memory.tables import MigRow
from dra_driver_gpu.nvml.values import (
    WHOLE_GPU,
    ComputeInstanceProfile,
    ComputeMode,
    EccCounter,
    EccKind,
    EventType,
    MigMode,
    Placement,
    Process,
    RecoveryAction,
    RemappedRows,
)

_ECC_EVENTS = EventType.SINGLE_BIT_ECC_ERROR | EventType.DOUBLE_BIT_ECC_ERROR
_NO_ROWS = RemappedRows(0, 0, pending=False, failed=False)
_ALWAYS = EventType.XID_CRITICAL_ERROR | EventType.PSTATE | EventType.CLOCK | EventType.POWER_SOURCE_CHANGE


class Refusal(Exception):  # noqa: N818  it never leaves the package: it becomes the NvmlError of the call
    """NVML's answer is this return code."""

    def __init__(self, code: ReturnCode) -> None:
        super().__init__(code)
        self.code = code


class ProcessKind(Enum):
    """Which of NVML's three lists a process is in."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"


@dataclass
class ComputeInstanceState:
    """A compute instance; `index` is that of its MIG device."""

    id: int
    profile: ComputeInstanceProfile
    placement: Placement
    index: int
    uuid: str


@dataclass
class GpuInstanceState:
    """A GPU instance and what it is cut into."""

    id: int
    row: MigRow
    placement: Placement
    profiles: tuple[ComputeInstanceProfile, ...]
    compute_instances: dict[int, ComputeInstanceState] = field(default_factory=dict)


@dataclass
class GpuState:
    """Everything that can change about one GPU."""

    gpu: FakeGpu
    mig: MigMode
    compute_mode: ComputeMode = ComputeMode.DEFAULT
    persistence: bool = False
    lost: bool = False
    recovery_action: RecoveryAction = RecoveryAction.NONE
    rows: RemappedRows = _NO_ROWS
    ecc: dict[tuple[EccKind, EccCounter], int] = field(default_factory=dict)
    processes: list[tuple[ProcessKind, Process]] = field(default_factory=list)
    instances: dict[int, GpuInstanceState] = field(default_factory=dict)

    @classmethod
    def of(cls, gpu: FakeGpu) -> GpuState:
        """A GPU as it is after the node has started."""
        return cls(gpu=gpu, mig=MigMode(gpu.mig, gpu.mig))

    @property
    def supported_events(self) -> EventType:
        """What event sets can be registered for: ECC events only with ECC."""
        return _ALWAYS | _ECC_EVENTS if self.gpu.ecc else _ALWAYS

    @property
    def used_bytes(self) -> int:
        """What the processes use together."""
        return sum(process.used_bytes or 0 for _, process in self.processes)

    def used_in(self, instance_id: int) -> int:
        """What the processes in one GPU instance use together."""
        return sum(one.used_bytes or 0 for _, one in self.processes if one.gpu_instance_id == instance_id)

    # MIG mode

    def require_mig(self) -> None:
        """Refuses where MIG is off or missing."""
        if not self.mig.current:
            raise Refusal(ReturnCode.NOT_SUPPORTED)

    def set_mig(self, on: bool) -> None:
        """Switches MIG. What cannot be switched now stays pending where a reset would switch it."""
        if not self.gpu.model.mig:
            raise Refusal(ReturnCode.NOT_SUPPORTED)
        resettable = self.gpu.model.toggles_live or not self.gpu.guest
        if not self.gpu.model.toggles_live:
            self.mig = MigMode(self.mig.current, on)
        if on == self.mig.current:
            self.mig = MigMode(on, on)
        elif self.processes or self.instances:
            raise Refusal(ReturnCode.IN_USE)
        elif not resettable:
            raise Refusal(ReturnCode.RESET_REQUIRED)
        else:
            self.mig = MigMode(on, on)

    def reset(self) -> None:
        """What a GPU reset leaves: no instances, no processes, MIG as pending; Hopper and later forget MIG."""
        on = self.mig.pending and not self.gpu.model.toggles_live
        self.instances.clear()
        self.processes.clear()
        self.mig = MigMode(on, on)
        self.compute_mode = ComputeMode.DEFAULT
        self.recovery_action = RecoveryAction.NONE
        self.lost = False

    # GPU instances

    def row(self, profile_id: int, otherwise: ReturnCode = ReturnCode.INVALID_ARGUMENT) -> MigRow:
        """The profile with this id; refuses with `otherwise` where the GPU has none."""
        for one in self.gpu.model.mig:
            if one.id == profile_id:
                return one
        raise Refusal(otherwise)

    def create(self, profile_id: int, placement: Placement | None) -> GpuInstanceState:
        """A new GPU instance, at `placement` or at the last that is free, as the driver does it."""
        self.require_mig()
        row = self.row(profile_id)
        if placement is not None and placement not in row.placements:
            raise Refusal(ReturnCode.INVALID_ARGUMENT)
        wanted = row.placements[::-1] if placement is None else (placement,)
        for one in wanted:
            if self._fits(row, one):
                return self._add(row, one)
        raise Refusal(ReturnCode.INSUFFICIENT_RESOURCES)

    def destroy(self, instance: GpuInstanceState) -> None:
        """Removes a GPU instance that nothing is on."""
        if instance.compute_instances or self._runs(instance.id, None):
            raise Refusal(ReturnCode.IN_USE)
        del self.instances[instance.id]

    def _add(self, row: MigRow, placement: Placement) -> GpuInstanceState:
        profiles = compute_instance_profiles(self.gpu.model, row)
        state = GpuInstanceState(self._instance_id(placement), row, placement, profiles)
        self.instances[state.id] = state
        return state

    def _instance_id(self, placement: Placement) -> int:
        """The whole is 0, its halves 1 and 2, its quarters 3 to 6, its eighths from 7 on."""
        parts = self.gpu.model.memory_slices // placement.size
        return parts - 1 + placement.start // placement.size

    def _fits(self, row: MigRow, placement: Placement) -> bool:
        taken = self.instances.values()
        if any(placement.overlaps(other.placement) for other in taken):
            return False
        if sum(other.row is row for other in taken) >= row.instances:
            return False
        whole = _demand(max(self.gpu.model.mig, key=lambda one: one.slices))
        rows = [row, *(other.row for other in taken)]
        return all(sum(parts) <= limit for limit, *parts in zip(whole, *map(_demand, rows), strict=True))

    # compute instances

    def create_compute(self, instance: GpuInstanceState, profile_id: int) -> ComputeInstanceState:
        """A new compute instance in the first free slices of a GPU instance; makes a MIG device."""
        profile = compute_profile(instance, profile_id)
        placement = _free_slices(instance, profile.slices)
        if placement is None:
            raise Refusal(ReturnCode.INSUFFICIENT_RESOURCES)
        compute_id = _lowest_free(instance.compute_instances)
        name = f"{self.gpu.uuid}/{instance.id}/{compute_id}"
        state = ComputeInstanceState(
            id=compute_id,
            profile=profile,
            placement=placement,
            index=_lowest_free({one.index for _, one in self.devices()}),
            uuid=f"MIG-{uuid.uuid5(uuid.NAMESPACE_DNS, name)}",
        )
        instance.compute_instances[compute_id] = state
        return state

    def destroy_compute(self, instance: GpuInstanceState, compute: ComputeInstanceState) -> None:
        """Removes a compute instance that no process runs on."""
        if self._runs(instance.id, compute.id):
            raise Refusal(ReturnCode.IN_USE)
        del instance.compute_instances[compute.id]

    def devices(self) -> list[tuple[GpuInstanceState, ComputeInstanceState]]:
        """The MIG devices, each with its GPU instance."""
        return [
            (instance, compute)
            for instance in self.instances.values()
            for compute in instance.compute_instances.values()
        ]

    @property
    def max_devices(self) -> int:
        """How many MIG devices there can be: one for each compute slice; 0 while MIG is off."""
        return max(row.slices for row in self.gpu.model.mig) if self.mig.current else 0

    def _runs(self, instance_id: int, compute_id: int | None) -> bool:
        return any(
            process.gpu_instance_id == instance_id and compute_id in {None, process.compute_instance_id, WHOLE_GPU}
            for _, process in self.processes
        )


def compute_profile(instance: GpuInstanceState, profile_id: int) -> ComputeInstanceProfile:
    """The compute instance profile with this id; refuses where the GPU instance has none."""
    for one in instance.profiles:
        if one.id == profile_id:
            return one
    raise Refusal(ReturnCode.NOT_SUPPORTED)


def _demand(row: MigRow) -> tuple[int, ...]:
    """What a GPU instance takes of what the whole GPU has."""
    return (row.slices, row.multiprocessors, row.memory_mib, *row.engines)


def _free_slices(instance: GpuInstanceState, size: int) -> Placement | None:
    taken = [one.placement for one in instance.compute_instances.values()]
    for start in range(instance.row.slices - size + 1):
        wanted = Placement(start, size)
        if not any(wanted.overlaps(other) for other in taken):
            return wanted
    return None


def _lowest_free(taken: Iterable[int]) -> int:
    numbers = set(taken)
    return next(number for number in range(len(numbers) + 1) if number not in numbers)
