"""Handles of GPUs in memory: the `Gpu` protocol over a `GpuState`."""

from __future__ import annotations

from dataclasses import dataclass

from dra_driver_gpu.nvml.api import GpuInstance
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.memory.driver import Driver, nvml_call
from dra_driver_gpu.nvml.memory.mig import MemoryGpuInstance, MemoryMigDevice
from dra_driver_gpu.nvml.memory.models import gpu_instance_profile
from dra_driver_gpu.nvml.memory.state import GpuState, ProcessKind, Refusal
from dra_driver_gpu.nvml.processes import all_processes
from dra_driver_gpu.nvml.values import (
    AddressingMode,
    Architecture,
    Brand,
    ComputeMode,
    EccCounter,
    EccKind,
    EventType,
    GpuInstanceProfile,
    GpuInstanceProfileKind,
    MemoryInfo,
    MigMode,
    PciInfo,
    Placement,
    Process,
    RecoveryAction,
    RemappedRows,
    VirtualizationMode,
)

_MIB = 1 << 20


@dataclass(frozen=True, eq=False)
class MemoryGpu:
    """One GPU in memory; equal to every other handle of it."""

    driver: Driver
    state: GpuState

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryGpu) and other.state is self.state

    def __hash__(self) -> int:
        return hash(self.state.gpu.uuid)

    @nvml_call("nvmlDeviceGetUUID")
    def uuid(self) -> str:
        """See `Gpu.uuid`."""
        return self.state.gpu.uuid

    @nvml_call("nvmlDeviceGetMinorNumber")
    def minor_number(self) -> int:
        """See `Gpu.minor_number`."""
        return self.state.gpu.minor

    @nvml_call("nvmlDeviceGetName")
    def name(self) -> str:
        """See `Gpu.name`."""
        return self.state.gpu.model.name

    @nvml_call("nvmlDeviceGetBrand")
    def brand(self) -> Brand:
        """See `Gpu.brand`."""
        return self.state.gpu.model.brand

    @nvml_call("nvmlDeviceGetArchitecture")
    def architecture(self) -> Architecture:
        """See `Gpu.architecture`."""
        return self.state.gpu.model.architecture

    @nvml_call("nvmlDeviceGetCudaComputeCapability")
    def compute_capability(self) -> tuple[int, int]:
        """See `Gpu.compute_capability`."""
        return self.state.gpu.model.compute_capability

    @nvml_call("nvmlDeviceGetMemoryInfo_v2")
    def memory(self) -> MemoryInfo:
        """See `Gpu.memory`."""
        if self.state.gpu.model.memory_mib is None:
            raise Refusal(ReturnCode.NOT_SUPPORTED)
        total, used = self.state.gpu.model.memory_mib * _MIB, self.state.used_bytes
        return MemoryInfo(total, total - used, used)

    @nvml_call("nvmlDeviceGetPciInfo_v3")
    def pci(self) -> PciInfo:
        """See `Gpu.pci`."""
        domain, bus, device = self.state.gpu.pci_address.removesuffix(".0").split(":")
        return PciInfo(
            bus_id=f"0000{self.state.gpu.pci_address.upper()}"[-16:],
            domain=int(domain, 16),
            bus=int(bus, 16),
            device=int(device, 16),
            device_id=self.state.gpu.pci_device_id,
            subsystem_id=0,
        )

    @nvml_call("nvmlDeviceGetAddressingMode")
    def addressing_mode(self) -> AddressingMode:
        """See `Gpu.addressing_mode`."""
        if self.state.gpu.model.addressing_mode is None:
            raise Refusal(ReturnCode.NOT_SUPPORTED)
        return self.state.gpu.model.addressing_mode

    @nvml_call("nvmlDeviceGetVirtualizationMode")
    def virtualization_mode(self) -> VirtualizationMode:
        """See `Gpu.virtualization_mode`."""
        return self.state.gpu.virtualization

    @nvml_call("nvmlDeviceGetComputeMode")
    def compute_mode(self) -> ComputeMode:
        """See `Gpu.compute_mode`."""
        self._refuse_mig()
        return self.state.compute_mode

    @nvml_call("nvmlDeviceSetComputeMode", changes=True)
    def set_compute_mode(self, mode: ComputeMode) -> None:
        """See `Gpu.set_compute_mode`."""
        self._refuse_mig()
        self.state.compute_mode = mode

    @nvml_call("nvmlDeviceGetPersistenceMode")
    def persistence_mode(self) -> bool:
        """See `Gpu.persistence_mode`."""
        return self.state.persistence

    @nvml_call("nvmlDeviceSetPersistenceMode", changes=True)
    def set_persistence_mode(self, on: bool) -> None:
        """See `Gpu.set_persistence_mode`."""
        self.state.persistence = on

    def processes(self) -> list[Process]:
        """See `Gpu.processes`."""
        return all_processes(self._compute, self._graphics, self._mps)

    @nvml_call("nvmlDeviceGetComputeRunningProcesses_v3")
    def _compute(self) -> list[Process]:
        return self._processes(ProcessKind.COMPUTE)

    @nvml_call("nvmlDeviceGetGraphicsRunningProcesses_v3")
    def _graphics(self) -> list[Process]:
        return self._processes(ProcessKind.GRAPHICS)

    @nvml_call("nvmlDeviceGetMPSComputeRunningProcesses_v3")
    def _mps(self) -> list[Process]:
        return self._processes(ProcessKind.MPS)

    def _processes(self, kind: ProcessKind) -> list[Process]:
        return [process for one, process in self.state.processes if one is kind]

    @nvml_call("nvmlDeviceGetTotalEccErrors")
    def ecc_errors(self, kind: EccKind, counter: EccCounter) -> int:
        """See `Gpu.ecc_errors`."""
        if not self.state.gpu.ecc:
            raise Refusal(ReturnCode.NOT_SUPPORTED)
        return self.state.ecc.get((kind, counter), 0)

    @nvml_call("nvmlDeviceGetRemappedRows")
    def remapped_rows(self) -> RemappedRows:
        """See `Gpu.remapped_rows`."""
        if self.state.gpu.model.architecture < Architecture.AMPERE or self.state.instances:
            raise Refusal(ReturnCode.NOT_SUPPORTED)
        return self.state.rows

    @nvml_call("nvmlDeviceGetFieldValues")
    def recovery_action(self) -> RecoveryAction:
        """See `Gpu.recovery_action`."""
        return self.state.recovery_action

    @nvml_call("nvmlDeviceGetSupportedEventTypes")
    def supported_events(self) -> EventType:
        """See `Gpu.supported_events`."""
        return self.state.supported_events

    @nvml_call("nvmlDeviceGetMigMode")
    def mig_mode(self) -> MigMode:
        """See `Gpu.mig_mode`."""
        self._require_mig_model()
        return self.state.mig

    @nvml_call("nvmlDeviceSetMigMode", changes=True)
    def set_mig_mode(self, on: bool) -> None:
        """See `Gpu.set_mig_mode`."""
        self.state.set_mig(on)

    @nvml_call("nvmlDeviceGetMaxMigDeviceCount")
    def max_mig_devices(self) -> int:
        """See `Gpu.max_mig_devices`."""
        return self.state.max_devices

    @nvml_call("nvmlDeviceGetMigDeviceHandleByIndex")
    def mig_device(self, index: int) -> MemoryMigDevice:
        """See `Gpu.mig_device`."""
        self.state.require_mig()
        for instance, compute in self.state.devices():
            if compute.index == index:
                return MemoryMigDevice(self, instance, compute)
        raise Refusal(ReturnCode.NOT_FOUND)

    @nvml_call("nvmlDeviceGetGpuInstanceProfileInfoV")
    def gpu_instance_profile(self, kind: GpuInstanceProfileKind) -> GpuInstanceProfile:
        """See `Gpu.gpu_instance_profile`."""
        for row in self.state.gpu.model.mig:
            if row.kind == kind:
                return gpu_instance_profile(row)
        raise Refusal(ReturnCode.NOT_SUPPORTED)

    @nvml_call("nvmlDeviceGetGpuInstancePossiblePlacements_v2")
    def possible_placements(self, profile_id: int) -> list[Placement]:
        """See `Gpu.possible_placements`."""
        return list(self.state.row(profile_id, ReturnCode.NOT_SUPPORTED).placements)

    def create_gpu_instance(self, profile_id: int, placement: Placement | None = None) -> MemoryGpuInstance:
        """See `Gpu.create_gpu_instance`."""
        name = "nvmlDeviceCreateGpuInstance" + ("" if placement is None else "WithPlacement")
        with self.driver.call(name, self.state, changes=True):
            return MemoryGpuInstance(self, self.state.create(profile_id, placement))

    @nvml_call("nvmlDeviceGetGpuInstances", changes=True)
    def gpu_instances(self, profile_id: int) -> list[GpuInstance]:
        """See `Gpu.gpu_instances`."""
        self.state.require_mig()
        row = self.state.row(profile_id)
        return [MemoryGpuInstance(self, one) for one in self.state.instances.values() if one.row is row]

    @nvml_call("nvmlDeviceGetGpuInstanceById", changes=True)
    def gpu_instance(self, instance_id: int) -> MemoryGpuInstance:
        """See `Gpu.gpu_instance`."""
        self.state.require_mig()
        if instance_id not in self.state.instances:
            raise Refusal(ReturnCode.NOT_FOUND)
        return MemoryGpuInstance(self, self.state.instances[instance_id])

    def _require_mig_model(self) -> None:
        if not self.state.gpu.model.mig:
            raise Refusal(ReturnCode.NOT_SUPPORTED)

    def _refuse_mig(self) -> None:
        # With MIG on, NVML takes compute modes of MIG devices only.
        if self.state.mig.current:
            raise Refusal(ReturnCode.NOT_SUPPORTED)
