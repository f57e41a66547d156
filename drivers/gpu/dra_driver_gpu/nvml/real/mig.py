"""MIG devices, GPU instances and compute instances of the real NVML."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from dra_driver_gpu.nvml.api import ComputeInstance, ComputeInstanceInfo, GpuInstanceInfo
from dra_driver_gpu.nvml.errors import FunctionNotFoundError
from dra_driver_gpu.nvml.real.calls import Binding, address, ask, profile_name, text
from dra_driver_gpu.nvml.values import (
    ComputeInstanceProfile,
    ComputeInstanceProfileKind,
    MemoryInfo,
    MigAttributes,
    Placement,
)

if TYPE_CHECKING:
    from dra_driver_gpu.nvml.real.gpu import RealGpu

MAX_INSTANCES: Final = 32
"""Room for the instances of one profile: NVML asks for as much as the profile allows, which is 8 at most today."""

_PROFILE_INFO: Final = "nvmlGpuInstanceGetComputeInstanceProfileInfo"


def read_memory(binding: Binding, handle: Any) -> MemoryInfo:
    """Memory of a GPU or a MIG device; drivers before R510 cannot tell what is reserved."""
    try:
        info = ask(
            binding, "nvmlDeviceGetMemoryInfo", handle, call="nvmlDeviceGetMemoryInfo_v2", version=binding.nvmlMemory_v2
        )
        reserved = int(info.reserved)
    except FunctionNotFoundError:
        info, reserved = ask(binding, "nvmlDeviceGetMemoryInfo", handle), 0
    return MemoryInfo(int(info.total), int(info.free), int(info.used), reserved)


@dataclass(frozen=True, eq=False)
class RealMigDevice:
    """One MIG device; equal to every other handle of it."""

    gpu: RealGpu
    handle: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RealMigDevice) and address(other.handle) == address(self.handle)

    def __hash__(self) -> int:
        return hash(address(self.handle))

    def _ask(self, name: str) -> Any:
        return ask(self.gpu.binding, name, self.handle)

    def uuid(self) -> str:
        """See `MigDevice.uuid`."""
        return text(self._ask("nvmlDeviceGetUUID"))

    def name(self) -> str:
        """See `MigDevice.name`."""
        return text(self._ask("nvmlDeviceGetName"))

    def parent(self) -> RealGpu:
        """See `MigDevice.parent`."""
        return replace(self.gpu, handle=self._ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle"))

    def gpu_instance_id(self) -> int:
        """See `MigDevice.gpu_instance_id`."""
        return int(self._ask("nvmlDeviceGetGpuInstanceId"))

    def compute_instance_id(self) -> int:
        """See `MigDevice.compute_instance_id`."""
        return int(self._ask("nvmlDeviceGetComputeInstanceId"))

    def attributes(self) -> MigAttributes:
        """See `MigDevice.attributes`."""
        found = self._ask("nvmlDeviceGetAttributes_v2")
        return MigAttributes(
            multiprocessors=int(found.multiprocessorCount),
            shared_copy_engines=int(found.sharedCopyEngineCount),
            shared_decoders=int(found.sharedDecoderCount),
            shared_encoders=int(found.sharedEncoderCount),
            shared_jpeg_engines=int(found.sharedJpegCount),
            shared_ofa_engines=int(found.sharedOfaCount),
            gpu_instance_slices=int(found.gpuInstanceSliceCount),
            compute_instance_slices=int(found.computeInstanceSliceCount),
            memory_mib=int(found.memorySizeMB),
        )

    def memory(self) -> MemoryInfo:
        """See `MigDevice.memory`."""
        return read_memory(self.gpu.binding, self.handle)


@dataclass(frozen=True, eq=False)
class RealGpuInstance:
    """One GPU instance; equal to every other handle of it."""

    gpu: RealGpu
    handle: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RealGpuInstance) and address(other.handle) == address(self.handle)

    def __hash__(self) -> int:
        return hash(address(self.handle))

    def _ask(self, name: str, *args: Any, call: str = "", **options: Any) -> Any:
        return ask(self.gpu.binding, name, self.handle, *args, call=call, **options)

    def info(self) -> GpuInstanceInfo:
        """See `GpuInstance.info`."""
        found = self._ask("nvmlGpuInstanceGetInfo")
        placement = Placement(int(found.placement.start), int(found.placement.size))
        gpu = replace(self.gpu, handle=found.device)
        return GpuInstanceInfo(gpu, int(found.id), int(found.profileId), placement)

    def compute_instance_profile(self, kind: ComputeInstanceProfileKind) -> ComputeInstanceProfile:
        """See `GpuInstance.compute_instance_profile`."""
        shared = self.gpu.binding.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
        try:
            info = self._ask(_PROFILE_INFO, int(kind), shared, call=f"{_PROFILE_INFO}V")
            name = profile_name(info.name)
        except FunctionNotFoundError:
            info, name = self._ask(_PROFILE_INFO, int(kind), shared, version=1), ""
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
        return RealComputeInstance(self.gpu, self._ask("nvmlGpuInstanceCreateComputeInstance", profile_id))

    def compute_instances(self, profile_id: int) -> list[ComputeInstance]:
        """See `GpuInstance.compute_instances`."""
        count = ctypes.c_uint()
        found = (self.gpu.binding.c_nvmlComputeInstance_t * MAX_INSTANCES)()
        self._ask("nvmlGpuInstanceGetComputeInstances", profile_id, found, ctypes.byref(count))
        return [RealComputeInstance(self.gpu, handle) for handle in found[: count.value]]

    def compute_instance(self, instance_id: int) -> RealComputeInstance:
        """See `GpuInstance.compute_instance`."""
        return RealComputeInstance(self.gpu, self._ask("nvmlGpuInstanceGetComputeInstanceById", instance_id))

    def destroy(self) -> None:
        """See `GpuInstance.destroy`."""
        self._ask("nvmlGpuInstanceDestroy")


@dataclass(frozen=True, eq=False)
class RealComputeInstance:
    """One compute instance; equal to every other handle of it."""

    gpu: RealGpu
    handle: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RealComputeInstance) and address(other.handle) == address(self.handle)

    def __hash__(self) -> int:
        return hash(address(self.handle))

    def info(self) -> ComputeInstanceInfo:
        """See `ComputeInstance.info`."""
        found = ask(self.gpu.binding, "nvmlComputeInstanceGetInfo_v2", self.handle)
        return ComputeInstanceInfo(
            device=RealMigDevice(self.gpu, found.device),
            gpu_instance=RealGpuInstance(self.gpu, found.gpuInstance),
            id=int(found.id),
            profile_id=int(found.profileId),
            placement=Placement(int(found.placement.start), int(found.placement.size)),
        )

    def destroy(self) -> None:
        """See `ComputeInstance.destroy`."""
        ask(self.gpu.binding, "nvmlComputeInstanceDestroy", self.handle)
