"""The state of one GPU in memory, and the rules of MIG on it. Pure: no locks, no handles, no faults.

What NVML would refuse raises `RefusedCallError` with NVML's return code; the caller adds the function that was called.
Sources: the MIG user guide for placements and sharing, nvml.h for the return codes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.mig import ComputeInstanceProfile, MigMode, Placement
from dra_driver_gpu.nvml.values import (
    WHOLE_GPU,
    ComputeMode,
    EccCounter,
    EccKind,
    EventType,
    GpuProcess,
    RecoveryAction,
    RemappedRows,
)
from dra_driver_gpu.testing.nvml.models import FakeGpu, MigRow, compute_instance_profiles

_ECC_EVENTS = EventType.SINGLE_BIT_ECC_ERROR | EventType.DOUBLE_BIT_ECC_ERROR
_NO_ROWS = RemappedRows(0, 0, pending=False, failed=False)
_ALWAYS = EventType.XID_CRITICAL_ERROR | EventType.PSTATE | EventType.CLOCK | EventType.POWER_SOURCE_CHANGE


class RefusedCallError(Exception):
    """NVML answers with this return code. It never leaves the package: it becomes the NvmlError of the call."""

    def __init__(self, code: ReturnCode) -> None:
        super().__init__(code)
        self.code = code


class ProcessKind(Enum):
    """The list of NVML that a process is in."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"


@dataclass
class ComputeInstanceState:
    """A compute instance.

    id: its number within the GPU instance.
    profile: its profile.
    placement: its compute slices.
    index: the index of its MIG device.
    uuid: the UUID of its MIG device.
    """

    id: int
    profile: ComputeInstanceProfile
    placement: Placement
    index: int
    uuid: str


@dataclass
class GpuInstanceState:
    """A GPU instance.

    id: its number on the GPU.
    row: its profile.
    placement: its memory slices.
    profiles: the compute instance profiles that it offers.
    compute_instances: its compute instances by number.
    """

    id: int
    row: MigRow
    placement: Placement
    profiles: tuple[ComputeInstanceProfile, ...]
    compute_instances: dict[int, ComputeInstanceState] = field(default_factory=dict)


@dataclass
class GpuState:
    """Everything that can change about one GPU.

    gpu: what it is.
    mig: whether MIG is on.
    compute_mode: its compute mode.
    persistence: its persistence mode is on.
    lost: it fell off the bus.
    recovery_action: what the driver says must happen to it.
    rows: its remapped rows.
    ecc: its ECC counters; a counter that is absent is 0.
    processes: its processes, each with the list that it is in.
    instances: its GPU instances by number.
    """

    gpu: FakeGpu
    mig: MigMode
    compute_mode: ComputeMode = ComputeMode.DEFAULT
    persistence: bool = False
    lost: bool = False
    recovery_action: RecoveryAction = RecoveryAction.NONE
    rows: RemappedRows = _NO_ROWS
    ecc: dict[tuple[EccKind, EccCounter], int] = field(default_factory=dict)
    processes: list[tuple[ProcessKind, GpuProcess]] = field(default_factory=list)
    instances: dict[int, GpuInstanceState] = field(default_factory=dict)

    @classmethod
    def of(cls, gpu: FakeGpu) -> GpuState:
        """Return a GPU just after the node has booted."""
        return cls(gpu=gpu, mig=MigMode(gpu.mig, gpu.mig))

    @property
    def supported_events(self) -> EventType:
        """The events that an event set can be registered for: ECC events only with ECC."""
        return _ALWAYS | _ECC_EVENTS if self.gpu.ecc else _ALWAYS

    @property
    def used_bytes(self) -> int:
        """The memory that all processes use."""
        return sum(process.used_bytes or 0 for _, process in self.processes)

    # MIG mode

    def require_mig(self) -> None:
        """NOT_SUPPORTED if MIG is off or missing."""
        if not self.mig.current:
            raise RefusedCallError(ReturnCode.NOT_SUPPORTED)

    def require_mig_off(self) -> None:
        """NOT_SUPPORTED if MIG is on: NVML then takes compute modes of MIG devices only."""
        if self.mig.current:
            raise RefusedCallError(ReturnCode.NOT_SUPPORTED)

    def set_mig(self, on: bool) -> None:
        """Turn MIG on or off; what a reset would change becomes the pending mode."""
        if not self.gpu.model.mig:
            raise RefusedCallError(ReturnCode.NOT_SUPPORTED)
        resettable = self.gpu.model.toggles_live or not self.gpu.guest
        if not self.gpu.model.toggles_live:
            self.mig = MigMode(self.mig.current, on)
        if on == self.mig.current:
            self.mig = MigMode(on, on)
        elif self.processes or self.instances:
            raise RefusedCallError(ReturnCode.IN_USE)
        elif not resettable:
            raise RefusedCallError(ReturnCode.RESET_REQUIRED)
        else:
            self.mig = MigMode(on, on)

    def reset(self) -> None:
        """Reset the GPU: no instances, no processes, MIG as pending; from Hopper on MIG is off afterwards."""
        on = self.mig.pending and not self.gpu.model.toggles_live
        self.instances.clear()
        self.processes.clear()
        self.mig = MigMode(on, on)
        self.compute_mode = ComputeMode.DEFAULT
        self.recovery_action = RecoveryAction.NONE
        self.lost = False

    # GPU instances

    def row(self, profile_id: int, otherwise: ReturnCode = ReturnCode.INVALID_ARGUMENT) -> MigRow:
        """Return the profile with this id; answers `otherwise` if the GPU has none."""
        for row in self.gpu.model.mig:
            if row.id == profile_id:
                return row
        raise RefusedCallError(otherwise)

    def create(self, profile_id: int, placement: Placement | None) -> GpuInstanceState:
        """Create a GPU instance at `placement`, or at the last free one, which is the driver's choice."""
        self.require_mig()
        row = self.row(profile_id)
        if placement is not None and placement not in row.placements:
            raise RefusedCallError(ReturnCode.INVALID_ARGUMENT)
        wanted = row.placements[::-1] if placement is None else (placement,)
        for candidate in wanted:
            if self._fits(row, candidate):
                return self._add(row, candidate)
        raise RefusedCallError(ReturnCode.INSUFFICIENT_RESOURCES)

    def destroy(self, instance: GpuInstanceState) -> None:
        """Remove a GPU instance; IN_USE while it has compute instances or processes."""
        if instance.compute_instances or self._runs(instance.id, None):
            raise RefusedCallError(ReturnCode.IN_USE)
        del self.instances[instance.id]

    def _add(self, row: MigRow, placement: Placement) -> GpuInstanceState:
        profiles = compute_instance_profiles(self.gpu.model, row)
        state = GpuInstanceState(self._instance_id(placement), row, placement, profiles)
        self.instances[state.id] = state
        return state

    def _instance_id(self, placement: Placement) -> int:
        """Return the whole GPU is 0, its halves are 1 and 2, its quarters 3 to 6, its eighths 7 and more."""
        parts = self.gpu.model.memory_slices // placement.size
        return parts - 1 + placement.start // placement.size

    def _fits(self, row: MigRow, placement: Placement) -> bool:
        taken = self.instances.values()
        if any(placement.overlaps(other.placement) for other in taken):
            return False
        if sum(other.row is row for other in taken) >= row.instances:
            return False
        whole = _demand(max(self.gpu.model.mig, key=lambda row: row.slices))
        rows = [row, *(other.row for other in taken)]
        return all(sum(parts) <= limit for limit, *parts in zip(whole, *map(_demand, rows), strict=True))

    # compute instances

    def create_compute(self, instance: GpuInstanceState, profile_id: int) -> ComputeInstanceState:
        """Create a compute instance, and so a MIG device, in the first free slices of a GPU instance."""
        profile = compute_profile(instance, profile_id)
        placement = _free_slices(instance, profile.slices)
        if placement is None:
            raise RefusedCallError(ReturnCode.INSUFFICIENT_RESOURCES)
        compute_id = _lowest_free(instance.compute_instances)
        name = f"{self.gpu.uuid}/{instance.id}/{compute_id}"
        state = ComputeInstanceState(
            id=compute_id,
            profile=profile,
            placement=placement,
            index=_lowest_free({device.index for _, device in self.devices()}),
            uuid=f"MIG-{uuid.uuid5(uuid.NAMESPACE_DNS, name)}",
        )
        instance.compute_instances[compute_id] = state
        return state

    def destroy_compute(self, instance: GpuInstanceState, compute: ComputeInstanceState) -> None:
        """Remove a compute instance; IN_USE while a process runs on it."""
        if self._runs(instance.id, compute.id):
            raise RefusedCallError(ReturnCode.IN_USE)
        del instance.compute_instances[compute.id]

    def devices(self) -> list[tuple[GpuInstanceState, ComputeInstanceState]]:
        """Return the MIG devices, each with its GPU instance."""
        return [
            (instance, compute)
            for instance in self.instances.values()
            for compute in instance.compute_instances.values()
        ]

    @property
    def max_devices(self) -> int:
        """How many MIG devices there can be: one per compute slice; 0 while MIG is off."""
        return max(row.slices for row in self.gpu.model.mig) if self.mig.current else 0

    def _runs(self, instance_id: int, compute_id: int | None) -> bool:
        return any(
            process.gpu_instance_id == instance_id and compute_id in {None, process.compute_instance_id, WHOLE_GPU}
            for _, process in self.processes
        )


def compute_profile(instance: GpuInstanceState, profile_id: int) -> ComputeInstanceProfile:
    """Return the compute instance profile with this id; NOT_SUPPORTED if the GPU instance has none."""
    for profile in instance.profiles:
        if profile.id == profile_id:
            return profile
    raise RefusedCallError(ReturnCode.NOT_SUPPORTED)


def _demand(row: MigRow) -> tuple[int, ...]:
    """Return what a GPU instance takes of the GPU."""
    return (row.slices, row.multiprocessors, row.memory_mib, *row.engines)


def _free_slices(instance: GpuInstanceState, size: int) -> Placement | None:
    taken = [compute.placement for compute in instance.compute_instances.values()]
    for start in range(instance.row.slices - size + 1):
        wanted = Placement(start, size)
        if not any(wanted.overlaps(other) for other in taken):
            return wanted
    return None


def _lowest_free(taken: Iterable[int]) -> int:
    numbers = set(taken)
    return next(number for number in range(len(numbers) + 1) if number not in numbers)
