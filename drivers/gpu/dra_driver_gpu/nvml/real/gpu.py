"""A GPU of the real NVML: the `Gpu` protocol over an `nvmlDevice_t`."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

from dra_driver_gpu.nvml.api import GpuInstance
from dra_driver_gpu.nvml.errors import FunctionNotFoundError, error_of
from dra_driver_gpu.nvml.processes import all_processes
from dra_driver_gpu.nvml.real.calls import Binding, address, ask, known, profile_name, text
from dra_driver_gpu.nvml.real.mig import MAX_INSTANCES, RealGpuInstance, RealMigDevice, read_memory
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

_PROFILE_INFO: Final = "nvmlDeviceGetGpuInstanceProfileInfo"
_PLACEMENTS: Final = "nvmlDeviceGetGpuInstancePossiblePlacements"


@dataclass(frozen=True, eq=False)
class RealGpu:
    """One GPU; equal to every other handle of it."""

    binding: Binding
    handle: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RealGpu) and address(other.handle) == address(self.handle)

    def __hash__(self) -> int:
        return hash(address(self.handle))

    def _ask(self, name: str, *args: Any, call: str = "", **options: Any) -> Any:
        return ask(self.binding, name, self.handle, *args, call=call, **options)

    def uuid(self) -> str:
        """See `Gpu.uuid`."""
        return text(self._ask("nvmlDeviceGetUUID"))

    def minor_number(self) -> int:
        """See `Gpu.minor_number`."""
        return int(self._ask("nvmlDeviceGetMinorNumber"))

    def name(self) -> str:
        """See `Gpu.name`."""
        return text(self._ask("nvmlDeviceGetName"))

    def brand(self) -> Brand:
        """See `Gpu.brand`."""
        return known(Brand, self._ask("nvmlDeviceGetBrand"), Brand.UNKNOWN)

    def architecture(self) -> Architecture:
        """See `Gpu.architecture`."""
        return known(Architecture, self._ask("nvmlDeviceGetArchitecture"), Architecture.UNKNOWN)

    def compute_capability(self) -> tuple[int, int]:
        """See `Gpu.compute_capability`."""
        major, minor = self._ask("nvmlDeviceGetCudaComputeCapability")
        return int(major), int(minor)

    def memory(self) -> MemoryInfo:
        """See `Gpu.memory`."""
        return read_memory(self.binding, self.handle)

    def pci(self) -> PciInfo:
        """See `Gpu.pci`."""
        info = self._ask("nvmlDeviceGetPciInfo_v3")
        return PciInfo(
            bus_id=text(info.busId),
            domain=int(info.domain),
            bus=int(info.bus),
            device=int(info.device),
            device_id=int(info.pciDeviceId),
            subsystem_id=int(info.pciSubSystemId),
        )

    def addressing_mode(self) -> AddressingMode:
        """See `Gpu.addressing_mode`."""
        return known(AddressingMode, self._ask("nvmlDeviceGetAddressingMode"), AddressingMode.NONE)

    def virtualization_mode(self) -> VirtualizationMode:
        """See `Gpu.virtualization_mode`."""
        return known(VirtualizationMode, self._ask("nvmlDeviceGetVirtualizationMode"), VirtualizationMode.NONE)

    def compute_mode(self) -> ComputeMode:
        """See `Gpu.compute_mode`."""
        return known(ComputeMode, self._ask("nvmlDeviceGetComputeMode"), ComputeMode.DEFAULT)

    def set_compute_mode(self, mode: ComputeMode) -> None:
        """See `Gpu.set_compute_mode`."""
        self._ask("nvmlDeviceSetComputeMode", int(mode))

    def persistence_mode(self) -> bool:
        """See `Gpu.persistence_mode`."""
        return bool(self._ask("nvmlDeviceGetPersistenceMode"))

    def set_persistence_mode(self, on: bool) -> None:
        """See `Gpu.set_persistence_mode`."""
        self._ask("nvmlDeviceSetPersistenceMode", int(on))

    def processes(self) -> list[Process]:
        """See `Gpu.processes`."""
        kinds = ("Compute", "Graphics", "MPSCompute")
        return all_processes(*(lambda kind=kind: self._processes(kind) for kind in kinds))

    def _processes(self, kind: str) -> list[Process]:
        return [
            Process(one.pid, one.usedGpuMemory, one.gpuInstanceId, one.computeInstanceId)
            for one in self._ask(f"nvmlDeviceGet{kind}RunningProcesses_v3")
        ]

    def ecc_errors(self, kind: EccKind, counter: EccCounter) -> int:
        """See `Gpu.ecc_errors`."""
        return int(self._ask("nvmlDeviceGetTotalEccErrors", int(kind), int(counter)))

    def remapped_rows(self) -> RemappedRows:
        """See `Gpu.remapped_rows`."""
        correctable, uncorrectable, pending, failed = self._ask("nvmlDeviceGetRemappedRows")
        return RemappedRows(correctable, uncorrectable, pending=bool(pending), failed=bool(failed))

    def recovery_action(self) -> RecoveryAction:
        """See `Gpu.recovery_action`."""
        call = "nvmlDeviceGetFieldValues"
        [field] = self._ask(call, [self.binding.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
        if field.nvmlReturn:
            raise error_of(call, field.nvmlReturn)
        return known(RecoveryAction, field.value.uiVal, RecoveryAction.UNKNOWN)

    def supported_events(self) -> EventType:
        """See `Gpu.supported_events`."""
        return EventType(self._ask("nvmlDeviceGetSupportedEventTypes"))

    def mig_mode(self) -> MigMode:
        """See `Gpu.mig_mode`."""
        current, pending = self._ask("nvmlDeviceGetMigMode")
        return MigMode(bool(current), bool(pending))

    def set_mig_mode(self, on: bool) -> None:
        """See `Gpu.set_mig_mode`."""
        status = self._ask("nvmlDeviceSetMigMode", int(on))
        if status:
            raise error_of("nvmlDeviceSetMigMode", status)

    def max_mig_devices(self) -> int:
        """See `Gpu.max_mig_devices`."""
        return int(self._ask("nvmlDeviceGetMaxMigDeviceCount"))

    def mig_device(self, index: int) -> RealMigDevice:
        """See `Gpu.mig_device`."""
        return RealMigDevice(self, self._ask("nvmlDeviceGetMigDeviceHandleByIndex", index))

    def gpu_instance_profile(self, kind: GpuInstanceProfileKind) -> GpuInstanceProfile:
        """See `Gpu.gpu_instance_profile`."""
        try:
            info = self._ask(_PROFILE_INFO, int(kind), call=f"{_PROFILE_INFO}V")
            name = profile_name(info.name)
        except FunctionNotFoundError:
            info, name = self._ask(_PROFILE_INFO, int(kind), version=1), ""
        return GpuInstanceProfile(
            kind=kind,
            id=int(info.id),
            name=name,
            slices=int(info.sliceCount),
            instances=int(info.instanceCount),
            multiprocessors=int(info.multiprocessorCount),
            copy_engines=int(info.copyEngineCount),
            decoders=int(info.decoderCount),
            encoders=int(info.encoderCount),
            jpeg_engines=int(info.jpegCount),
            ofa_engines=int(info.ofaCount),
            memory_mib=int(info.memorySizeMB),
            p2p=bool(info.isP2pSupported),
        )

    def possible_placements(self, profile_id: int) -> list[Placement]:
        """See `Gpu.possible_placements`."""
        count = ctypes.c_uint()
        call = f"{_PLACEMENTS}_v2"
        self._ask(_PLACEMENTS, profile_id, None, ctypes.byref(count), call=call)
        found = (self.binding.c_nvmlGpuInstancePlacement_t * count.value)()
        self._ask(_PLACEMENTS, profile_id, found, ctypes.byref(count), call=call)
        return [Placement(one.start, one.size) for one in found[: count.value]]

    def create_gpu_instance(self, profile_id: int, placement: Placement | None = None) -> RealGpuInstance:
        """See `Gpu.create_gpu_instance`."""
        if placement is None:
            return RealGpuInstance(self, self._ask("nvmlDeviceCreateGpuInstance", profile_id))
        wanted = self.binding.c_nvmlGpuInstancePlacement_t(placement.start, placement.size)
        name = "nvmlDeviceCreateGpuInstanceWithPlacement"
        return RealGpuInstance(self, self._ask(name, profile_id, ctypes.byref(wanted)))

    def gpu_instances(self, profile_id: int) -> list[GpuInstance]:
        """See `Gpu.gpu_instances`."""
        count = ctypes.c_uint()
        found = (self.binding.c_nvmlGpuInstance_t * MAX_INSTANCES)()
        self._ask("nvmlDeviceGetGpuInstances", profile_id, found, ctypes.byref(count))
        return [RealGpuInstance(self, handle) for handle in found[: count.value]]

    def gpu_instance(self, instance_id: int) -> RealGpuInstance:
        """See `Gpu.gpu_instance`."""
        return RealGpuInstance(self, self._ask("nvmlDeviceGetGpuInstanceById", instance_id))
