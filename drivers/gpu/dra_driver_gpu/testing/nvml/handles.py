"""Handles of the in-memory NVML: GPUs, MIG devices, GPU instances and compute instances over a `GpuState`.

A handle to an instance that was destroyed answers INVALID_ARGUMENT.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dra_driver_gpu.nvml.api import ComputeInstance, ComputeInstanceInfo, GpuInstance, GpuInstanceInfo
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.mig import (
    ComputeInstanceProfile,
    ComputeInstanceProfileKind,
    GpuInstanceProfile,
    GpuInstanceProfileKind,
    MigAttributes,
    MigMode,
    Placement,
)
from dra_driver_gpu.nvml.queries import merge_processes
from dra_driver_gpu.nvml.values import (
    AddressingMode,
    Architecture,
    Brand,
    ComputeMode,
    EccCounter,
    EccKind,
    EventType,
    GpuProcess,
    MemoryInfo,
    PciInfo,
    RecoveryAction,
    RemappedRows,
    VirtualizationMode,
)
from dra_driver_gpu.testing.nvml.driver import KernelDriver, nvml_call
from dra_driver_gpu.testing.nvml.models import gpu_instance_profile
from dra_driver_gpu.testing.nvml.state import (
    ComputeInstanceState,
    GpuInstanceState,
    GpuState,
    ProcessKind,
    RefusedCallError,
    compute_profile,
)

_MIB: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class MemoryGpu:
    """One GPU: the `Gpu` protocol in memory. Equal to every other handle to it.

    driver: the kernel driver.
    state: the GPU.
    """

    driver: KernelDriver
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
            raise RefusedCallError(ReturnCode.NOT_SUPPORTED)
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
            raise RefusedCallError(ReturnCode.NOT_SUPPORTED)
        return self.state.gpu.model.addressing_mode

    @nvml_call("nvmlDeviceGetModuleId")
    def module_id(self) -> int:
        """See `Gpu.module_id`; modules are counted from 1 in the order of minor numbers."""
        return self.state.gpu.minor + 1

    @nvml_call("nvmlDeviceGetVirtualizationMode")
    def virtualization_mode(self) -> VirtualizationMode:
        """See `Gpu.virtualization_mode`."""
        return self.state.gpu.virtualization

    @nvml_call("nvmlDeviceGetComputeMode")
    def compute_mode(self) -> ComputeMode:
        """See `Gpu.compute_mode`."""
        self.state.require_mig_off()
        return self.state.compute_mode

    @nvml_call("nvmlDeviceSetComputeMode", changes=True)
    def set_compute_mode(self, mode: ComputeMode) -> None:
        """See `Gpu.set_compute_mode`."""
        self.state.require_mig_off()
        self.state.compute_mode = mode

    @nvml_call("nvmlDeviceGetPersistenceMode")
    def persistence_mode(self) -> bool:
        """See `Gpu.persistence_mode`."""
        return self.state.persistence

    @nvml_call("nvmlDeviceSetPersistenceMode", changes=True)
    def set_persistence_mode(self, on: bool) -> None:
        """See `Gpu.set_persistence_mode`."""
        self.state.persistence = on

    def processes(self) -> list[GpuProcess]:
        """See `Gpu.processes`."""
        return merge_processes(self._compute, self._graphics, self._mps)

    @nvml_call("nvmlDeviceGetComputeRunningProcesses_v3")
    def _compute(self) -> list[GpuProcess]:
        return self._processes(ProcessKind.COMPUTE)

    @nvml_call("nvmlDeviceGetGraphicsRunningProcesses_v3")
    def _graphics(self) -> list[GpuProcess]:
        return self._processes(ProcessKind.GRAPHICS)

    @nvml_call("nvmlDeviceGetMPSComputeRunningProcesses_v3")
    def _mps(self) -> list[GpuProcess]:
        return self._processes(ProcessKind.MPS)

    def _processes(self, kind: ProcessKind) -> list[GpuProcess]:
        return [process for process_kind, process in self.state.processes if process_kind is kind]

    @nvml_call("nvmlDeviceGetTotalEccErrors")
    def ecc_errors(self, kind: EccKind, counter: EccCounter) -> int:
        """See `Gpu.ecc_errors`."""
        if not self.state.gpu.ecc:
            raise RefusedCallError(ReturnCode.NOT_SUPPORTED)
        return self.state.ecc.get((kind, counter), 0)

    @nvml_call("nvmlDeviceGetRemappedRows")
    def remapped_rows(self) -> RemappedRows:
        """See `Gpu.remapped_rows`."""
        if self.state.gpu.model.architecture < Architecture.AMPERE or self.state.instances:
            raise RefusedCallError(ReturnCode.NOT_SUPPORTED)
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
        if not self.state.gpu.model.mig:
            raise RefusedCallError(ReturnCode.NOT_SUPPORTED)
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
        raise RefusedCallError(ReturnCode.NOT_FOUND)

    @nvml_call("nvmlDeviceGetGpuInstanceProfileInfoV")
    def gpu_instance_profile(self, kind: GpuInstanceProfileKind) -> GpuInstanceProfile:
        """See `Gpu.gpu_instance_profile`."""
        for row in self.state.gpu.model.mig:
            if row.kind == kind:
                return gpu_instance_profile(row)
        raise RefusedCallError(ReturnCode.NOT_SUPPORTED)

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
        return [MemoryGpuInstance(self, instance) for instance in self.state.instances.values() if instance.row is row]

    @nvml_call("nvmlDeviceGetGpuInstanceById", changes=True)
    def gpu_instance(self, instance_id: int) -> MemoryGpuInstance:
        """See `Gpu.gpu_instance`."""
        self.state.require_mig()
        if instance_id not in self.state.instances:
            raise RefusedCallError(ReturnCode.NOT_FOUND)
        return MemoryGpuInstance(self, self.state.instances[instance_id])


@dataclass(frozen=True, eq=False)
class _PartOfGpu:
    """A handle to a part of a GPU."""

    gpu: MemoryGpu
    instance: GpuInstanceState

    @property
    def driver(self) -> KernelDriver:
        """The kernel driver."""
        return self.gpu.driver

    @property
    def state(self) -> GpuState:
        """The GPU."""
        return self.gpu.state


@dataclass(frozen=True, eq=False)
class MemoryGpuInstance(_PartOfGpu):
    """One GPU instance: the `GpuInstance` protocol in memory. Equal to every other handle to it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryGpuInstance) and other.instance is self.instance

    def __hash__(self) -> int:
        return hash((self.gpu, self.instance.id))

    @nvml_call("nvmlGpuInstanceGetInfo")
    def info(self) -> GpuInstanceInfo:
        """See `GpuInstance.info`."""
        self._require_alive()
        return GpuInstanceInfo(self.gpu, self.instance.id, self.instance.row.id, self.instance.placement)

    @nvml_call("nvmlGpuInstanceGetComputeInstanceProfileInfoV")
    def compute_instance_profile(self, kind: ComputeInstanceProfileKind) -> ComputeInstanceProfile:
        """See `GpuInstance.compute_instance_profile`."""
        self._require_alive()
        for profile in self.instance.profiles:
            if profile.kind == kind:
                return profile
        raise RefusedCallError(ReturnCode.NOT_SUPPORTED)

    @nvml_call("nvmlGpuInstanceCreateComputeInstance", changes=True)
    def create_compute_instance(self, profile_id: int) -> MemoryComputeInstance:
        """See `GpuInstance.create_compute_instance`."""
        self._require_alive()
        compute = self.state.create_compute(self.instance, profile_id)
        return MemoryComputeInstance(self.gpu, self.instance, compute)

    @nvml_call("nvmlGpuInstanceGetComputeInstances", changes=True)
    def compute_instances(self, profile_id: int) -> list[ComputeInstance]:
        """See `GpuInstance.compute_instances`."""
        self._require_alive()
        profile = compute_profile(self.instance, profile_id)
        instances = [instance for instance in self.instance.compute_instances.values() if instance.profile == profile]
        return [MemoryComputeInstance(self.gpu, self.instance, instance) for instance in instances]

    @nvml_call("nvmlGpuInstanceGetComputeInstanceById", changes=True)
    def compute_instance(self, instance_id: int) -> MemoryComputeInstance:
        """See `GpuInstance.compute_instance`."""
        self._require_alive()
        if instance_id not in self.instance.compute_instances:
            raise RefusedCallError(ReturnCode.NOT_FOUND)
        return MemoryComputeInstance(self.gpu, self.instance, self.instance.compute_instances[instance_id])

    @nvml_call("nvmlGpuInstanceDestroy", changes=True)
    def destroy(self) -> None:
        """See `GpuInstance.destroy`."""
        self._require_alive()
        self.state.destroy(self.instance)

    def _require_alive(self) -> None:
        if self.state.instances.get(self.instance.id) is not self.instance:
            raise RefusedCallError(ReturnCode.INVALID_ARGUMENT)


@dataclass(frozen=True, eq=False)
class _PartOfGpuInstance(_PartOfGpu):
    """A handle to a compute instance, or to its MIG device."""

    compute: ComputeInstanceState

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other.compute is self.compute

    def __hash__(self) -> int:
        return hash((self.gpu, self.instance.id, self.compute.id))

    def _require_alive(self) -> None:
        instance = self.state.instances.get(self.instance.id)
        if instance is not self.instance or instance.compute_instances.get(self.compute.id) is not self.compute:
            raise RefusedCallError(ReturnCode.INVALID_ARGUMENT)


@dataclass(frozen=True, eq=False)
class MemoryComputeInstance(_PartOfGpuInstance):
    """One compute instance: the `ComputeInstance` protocol in memory. Equal to every other handle to it."""

    @nvml_call("nvmlComputeInstanceGetInfo_v2")
    def info(self) -> ComputeInstanceInfo:
        """See `ComputeInstance.info`."""
        self._require_alive()
        return ComputeInstanceInfo(
            device=MemoryMigDevice(self.gpu, self.instance, self.compute),
            gpu_instance=MemoryGpuInstance(self.gpu, self.instance),
            id=self.compute.id,
            profile_id=self.compute.profile.id,
            placement=self.compute.placement,
        )

    @nvml_call("nvmlComputeInstanceDestroy", changes=True)
    def destroy(self) -> None:
        """See `ComputeInstance.destroy`."""
        self._require_alive()
        self.state.destroy_compute(self.instance, self.compute)


@dataclass(frozen=True, eq=False)
class MemoryMigDevice(_PartOfGpuInstance):
    """One MIG device: the `MigDevice` protocol in memory. Equal to every other handle to it."""

    @nvml_call("nvmlDeviceGetUUID")
    def uuid(self) -> str:
        """See `MigDevice.uuid`."""
        self._require_alive()
        return self.compute.uuid

    @nvml_call("nvmlDeviceGetGpuInstanceId")
    def gpu_instance_id(self) -> int:
        """See `MigDevice.gpu_instance_id`."""
        self._require_alive()
        return self.instance.id

    @nvml_call("nvmlDeviceGetComputeInstanceId")
    def compute_instance_id(self) -> int:
        """See `MigDevice.compute_instance_id`."""
        self._require_alive()
        return self.compute.id

    @nvml_call("nvmlDeviceGetAttributes_v2")
    def attributes(self) -> MigAttributes:
        """See `MigDevice.attributes`."""
        self._require_alive()
        copy, decoder, encoder, jpeg, ofa = self.instance.row.engines
        return MigAttributes(
            multiprocessors=self.compute.profile.multiprocessors,
            shared_copy_engines=copy,
            shared_decoders=decoder,
            shared_encoders=encoder,
            shared_jpeg_engines=jpeg,
            shared_ofa_engines=ofa,
            gpu_instance_slices=self.instance.row.slices,
            compute_instance_slices=self.compute.profile.slices,
            memory_mib=self.instance.row.memory_mib,
        )
