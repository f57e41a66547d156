"""Handles of the real NVML: GPUs, MIG devices, GPU instances and compute instances over nvidia-ml-py.

Each method makes one call of nvidia-ml-py, whose exceptions become `NvmlError`s, whose structures become values.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any, Final, TypeAlias, TypeVar

from dra_driver_gpu.nvml.api import ComputeInstance, ComputeInstanceInfo, GpuInstance, GpuInstanceInfo
from dra_driver_gpu.nvml.errors import FunctionNotFoundError, error_of
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

Binding: TypeAlias = Any
"""The module nvidia-ml-py; it has no types."""
_MAX_INSTANCES: Final = 32
"""Room for the instances of one profile: NVML wants as much as the profile allows, which is 8 at most today."""
_GPU_PROFILE: Final = "nvmlDeviceGetGpuInstanceProfileInfo"
_COMPUTE_PROFILE: Final = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
_PLACEMENTS: Final = "nvmlDeviceGetGpuInstancePossiblePlacements"
_PROCESS_LISTS: Final = ("Compute", "Graphics", "MPSCompute")
_Enum = TypeVar("_Enum", bound=IntEnum)


def ask(binding: Binding, name: str, *args: Any, call: str = "", **options: Any) -> Any:
    """Return the answer of function `name` of nvidia-ml-py; `call` is NVML's own name for it if that differs."""
    try:
        return getattr(binding, name)(*args, **options)
    except binding.NVMLError as error:
        raise error_of(call or name, error.value) from None


class _Handle:
    """An NVML handle; equal to every other handle to the same thing."""

    def __init__(self, binding: Binding, handle: Any) -> None:
        self.binding = binding
        self.handle = handle

    @property
    def address(self) -> int:
        """The number behind the handle, which two handles to the same thing have in common."""
        return ctypes.cast(self.handle, ctypes.c_void_p).value or 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other.address == self.address

    def __hash__(self) -> int:
        return hash(self.address)

    def _ask(self, name: str, *args: Any, call: str = "", **options: Any) -> Any:
        return ask(self.binding, name, self.handle, *args, call=call, **options)

    def _list(self, name: str, kind: Any, profile_id: int) -> list[Any]:
        """Return the handles of a function that fills an array and a count."""
        count = ctypes.c_uint()
        items = (kind * _MAX_INSTANCES)()
        self._ask(name, profile_id, items, ctypes.byref(count))
        return list(items[: count.value])


class RealGpu(_Handle):
    """One GPU: the `Gpu` protocol over an `nvmlDevice_t`."""

    def uuid(self) -> str:
        """See `Gpu.uuid`."""
        return _text(self._ask("nvmlDeviceGetUUID"))

    def minor_number(self) -> int:
        """See `Gpu.minor_number`."""
        return int(self._ask("nvmlDeviceGetMinorNumber"))

    def name(self) -> str:
        """See `Gpu.name`."""
        return _text(self._ask("nvmlDeviceGetName"))

    def brand(self) -> Brand:
        """See `Gpu.brand`."""
        return _known(Brand, self._ask("nvmlDeviceGetBrand"), Brand.UNKNOWN)

    def architecture(self) -> Architecture:
        """See `Gpu.architecture`."""
        return _known(Architecture, self._ask("nvmlDeviceGetArchitecture"), Architecture.UNKNOWN)

    def compute_capability(self) -> tuple[int, int]:
        """See `Gpu.compute_capability`."""
        major, minor = self._ask("nvmlDeviceGetCudaComputeCapability")
        return int(major), int(minor)

    def memory(self) -> MemoryInfo:
        """See `Gpu.memory`. Drivers before R510 do not report what is reserved."""
        name, version = "nvmlDeviceGetMemoryInfo", self.binding.nvmlMemory_v2
        try:
            info = self._ask(name, call=f"{name}_v2", version=version)
            reserved = int(info.reserved)
        except FunctionNotFoundError:
            info, reserved = self._ask(name), 0
        return MemoryInfo(int(info.total), int(info.free), int(info.used), reserved)

    def pci(self) -> PciInfo:
        """See `Gpu.pci`."""
        info = self._ask("nvmlDeviceGetPciInfo_v3")
        return PciInfo(
            bus_id=_text(info.busId),
            domain=int(info.domain),
            bus=int(info.bus),
            device=int(info.device),
            device_id=int(info.pciDeviceId),
            subsystem_id=int(info.pciSubSystemId),
        )

    def addressing_mode(self) -> AddressingMode:
        """See `Gpu.addressing_mode`."""
        return _known(AddressingMode, self._ask("nvmlDeviceGetAddressingMode"), AddressingMode.NONE)

    def module_id(self) -> int:
        """See `Gpu.module_id`."""
        return int(self._ask("nvmlDeviceGetModuleId"))

    def virtualization_mode(self) -> VirtualizationMode:
        """See `Gpu.virtualization_mode`."""
        return _known(VirtualizationMode, self._ask("nvmlDeviceGetVirtualizationMode"), VirtualizationMode.NONE)

    def compute_mode(self) -> ComputeMode:
        """See `Gpu.compute_mode`."""
        return _known(ComputeMode, self._ask("nvmlDeviceGetComputeMode"), ComputeMode.DEFAULT)

    def set_compute_mode(self, mode: ComputeMode) -> None:
        """See `Gpu.set_compute_mode`."""
        self._ask("nvmlDeviceSetComputeMode", int(mode))

    def persistence_mode(self) -> bool:
        """See `Gpu.persistence_mode`."""
        return bool(self._ask("nvmlDeviceGetPersistenceMode"))

    def set_persistence_mode(self, on: bool) -> None:
        """See `Gpu.set_persistence_mode`."""
        self._ask("nvmlDeviceSetPersistenceMode", int(on))

    def processes(self) -> list[GpuProcess]:
        """See `Gpu.processes`."""
        return merge_processes(*(lambda name=name: self._processes(name) for name in _PROCESS_LISTS))

    def _processes(self, name: str) -> list[GpuProcess]:
        return [
            GpuProcess(process.pid, process.usedGpuMemory, process.gpuInstanceId, process.computeInstanceId)
            for process in self._ask(f"nvmlDeviceGet{name}RunningProcesses_v3")
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
        return _known(RecoveryAction, field.value.uiVal, RecoveryAction.UNKNOWN)

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
        return RealMigDevice(self.binding, self._ask("nvmlDeviceGetMigDeviceHandleByIndex", index))

    def gpu_instance_profile(self, kind: GpuInstanceProfileKind) -> GpuInstanceProfile:
        """See `Gpu.gpu_instance_profile`."""
        try:
            info = self._ask(_GPU_PROFILE, int(kind), call=f"{_GPU_PROFILE}V")
            name = _profile_name(info.name)
        except FunctionNotFoundError:
            info, name = self._ask(_GPU_PROFILE, int(kind), version=1), ""
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
        placements = (self.binding.c_nvmlGpuInstancePlacement_t * count.value)()
        self._ask(_PLACEMENTS, profile_id, placements, ctypes.byref(count), call=call)
        return [Placement(placement.start, placement.size) for placement in placements[: count.value]]

    def create_gpu_instance(self, profile_id: int, placement: Placement | None = None) -> RealGpuInstance:
        """See `Gpu.create_gpu_instance`."""
        if placement is None:
            return RealGpuInstance(self.binding, self._ask("nvmlDeviceCreateGpuInstance", profile_id))
        wanted = ctypes.byref(self.binding.c_nvmlGpuInstancePlacement_t(placement.start, placement.size))
        handle = self._ask("nvmlDeviceCreateGpuInstanceWithPlacement", profile_id, wanted)
        return RealGpuInstance(self.binding, handle)

    def gpu_instances(self, profile_id: int) -> list[GpuInstance]:
        """See `Gpu.gpu_instances`."""
        handles = self._list("nvmlDeviceGetGpuInstances", self.binding.c_nvmlGpuInstance_t, profile_id)
        return [RealGpuInstance(self.binding, handle) for handle in handles]

    def gpu_instance(self, instance_id: int) -> RealGpuInstance:
        """See `Gpu.gpu_instance`."""
        return RealGpuInstance(self.binding, self._ask("nvmlDeviceGetGpuInstanceById", instance_id))


class RealMigDevice(_Handle):
    """One MIG device: the `MigDevice` protocol over an `nvmlDevice_t`."""

    def uuid(self) -> str:
        """See `MigDevice.uuid`."""
        return _text(self._ask("nvmlDeviceGetUUID"))

    def gpu_instance_id(self) -> int:
        """See `MigDevice.gpu_instance_id`."""
        return int(self._ask("nvmlDeviceGetGpuInstanceId"))

    def compute_instance_id(self) -> int:
        """See `MigDevice.compute_instance_id`."""
        return int(self._ask("nvmlDeviceGetComputeInstanceId"))

    def attributes(self) -> MigAttributes:
        """See `MigDevice.attributes`."""
        attributes = self._ask("nvmlDeviceGetAttributes_v2")
        return MigAttributes(
            multiprocessors=int(attributes.multiprocessorCount),
            shared_copy_engines=int(attributes.sharedCopyEngineCount),
            shared_decoders=int(attributes.sharedDecoderCount),
            shared_encoders=int(attributes.sharedEncoderCount),
            shared_jpeg_engines=int(attributes.sharedJpegCount),
            shared_ofa_engines=int(attributes.sharedOfaCount),
            gpu_instance_slices=int(attributes.gpuInstanceSliceCount),
            compute_instance_slices=int(attributes.computeInstanceSliceCount),
            memory_mib=int(attributes.memorySizeMB),
        )


class RealGpuInstance(_Handle):
    """One GPU instance: the `GpuInstance` protocol over an `nvmlGpuInstance_t`."""

    def info(self) -> GpuInstanceInfo:
        """See `GpuInstance.info`."""
        info = self._ask("nvmlGpuInstanceGetInfo")
        gpu = RealGpu(self.binding, info.device)
        return GpuInstanceInfo(gpu, int(info.id), int(info.profileId), _placement(info.placement))

    def compute_instance_profile(self, kind: ComputeInstanceProfileKind) -> ComputeInstanceProfile:
        """See `GpuInstance.compute_instance_profile`."""
        shared = self.binding.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
        try:
            info = self._ask(_COMPUTE_PROFILE, int(kind), shared, call=f"{_COMPUTE_PROFILE}V")
            name = _profile_name(info.name)
        except FunctionNotFoundError:
            info, name = self._ask(_COMPUTE_PROFILE, int(kind), shared, version=1), ""
        return ComputeInstanceProfile(
            kind=kind,
            id=int(info.id),
            name=name,
            slices=int(info.sliceCount),
            instances=int(info.instanceCount),
            multiprocessors=int(info.multiprocessorCount),
            shared_copy_engines=int(info.sharedCopyEngineCount),
            shared_decoders=int(info.sharedDecoderCount),
            shared_encoders=int(info.sharedEncoderCount),
            shared_jpeg_engines=int(info.sharedJpegCount),
            shared_ofa_engines=int(info.sharedOfaCount),
        )

    def create_compute_instance(self, profile_id: int) -> RealComputeInstance:
        """See `GpuInstance.create_compute_instance`."""
        return RealComputeInstance(self.binding, self._ask("nvmlGpuInstanceCreateComputeInstance", profile_id))

    def compute_instances(self, profile_id: int) -> list[ComputeInstance]:
        """See `GpuInstance.compute_instances`."""
        handles = self._list("nvmlGpuInstanceGetComputeInstances", self.binding.c_nvmlComputeInstance_t, profile_id)
        return [RealComputeInstance(self.binding, handle) for handle in handles]

    def compute_instance(self, instance_id: int) -> RealComputeInstance:
        """See `GpuInstance.compute_instance`."""
        return RealComputeInstance(self.binding, self._ask("nvmlGpuInstanceGetComputeInstanceById", instance_id))

    def destroy(self) -> None:
        """See `GpuInstance.destroy`."""
        self._ask("nvmlGpuInstanceDestroy")


class RealComputeInstance(_Handle):
    """One compute instance: the `ComputeInstance` protocol over an `nvmlComputeInstance_t`."""

    def info(self) -> ComputeInstanceInfo:
        """See `ComputeInstance.info`."""
        info = self._ask("nvmlComputeInstanceGetInfo_v2")
        return ComputeInstanceInfo(
            device=RealMigDevice(self.binding, info.device),
            gpu_instance=RealGpuInstance(self.binding, info.gpuInstance),
            id=int(info.id),
            profile_id=int(info.profileId),
            placement=_placement(info.placement),
        )

    def destroy(self) -> None:
        """See `ComputeInstance.destroy`."""
        self._ask("nvmlComputeInstanceDestroy")


def _placement(placement: Any) -> Placement:
    return Placement(int(placement.start), int(placement.size))


def _text(answer: bytes | str) -> str:
    """Return a string of NVML as str: fields of structures are bytes, most results of functions are str."""
    return answer.decode() if isinstance(answer, bytes) else answer


def _profile_name(name: bytes) -> str:
    """Return the name of a profile; drivers put `MIG ` before it."""
    return _text(name).removeprefix("MIG ")


def _known(kind: type[_Enum], number: int, otherwise: _Enum) -> _Enum:
    """Return the member of `kind` with this number; `otherwise` for a number that only a newer driver knows."""
    try:
        return kind(number)
    except ValueError:
        return otherwise
