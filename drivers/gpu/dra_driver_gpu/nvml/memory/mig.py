"""Handles of MIG devices, GPU instances and compute instances in memory. A handle of what is gone is invalid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dra_driver_gpu.nvml.api import ComputeInstance, ComputeInstanceInfo, GpuInstanceInfo
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.memory.driver import Driver, nvml_call
from dra_driver_gpu.nvml.memory.state import ComputeInstanceState, GpuInstanceState, GpuState, Refusal, compute_profile
from dra_driver_gpu.nvml.values import ComputeInstanceProfile, ComputeInstanceProfileKind, MemoryInfo, MigAttributes

if TYPE_CHECKING:
    from dra_driver_gpu.nvml.memory.gpu import MemoryGpu

_MIB = 1 << 20


@dataclass(frozen=True, eq=False)
class MemoryGpuInstance:
    """One GPU instance in memory; equal to every other handle of it."""

    gpu: MemoryGpu
    instance: GpuInstanceState

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryGpuInstance) and other.instance is self.instance

    def __hash__(self) -> int:
        return hash((self.gpu, self.instance.id))

    @property
    def driver(self) -> Driver:
        """The driver it is a handle of."""
        return self.gpu.driver

    @property
    def state(self) -> GpuState:
        """The GPU it is a part of."""
        return self.gpu.state

    @nvml_call("nvmlGpuInstanceGetInfo")
    def info(self) -> GpuInstanceInfo:
        """See `GpuInstance.info`."""
        self._require()
        return GpuInstanceInfo(self.gpu, self.instance.id, self.instance.row.id, self.instance.placement)

    @nvml_call("nvmlGpuInstanceGetComputeInstanceProfileInfoV")
    def compute_instance_profile(self, kind: ComputeInstanceProfileKind) -> ComputeInstanceProfile:
        """See `GpuInstance.compute_instance_profile`."""
        self._require()
        for one in self.instance.profiles:
            if one.kind == kind:
                return one
        raise Refusal(ReturnCode.NOT_SUPPORTED)

    @nvml_call("nvmlGpuInstanceCreateComputeInstance", changes=True)
    def create_compute_instance(self, profile_id: int) -> MemoryComputeInstance:
        """See `GpuInstance.create_compute_instance`."""
        self._require()
        return MemoryComputeInstance(self, self.state.create_compute(self.instance, profile_id))

    @nvml_call("nvmlGpuInstanceGetComputeInstances", changes=True)
    def compute_instances(self, profile_id: int) -> list[ComputeInstance]:
        """See `GpuInstance.compute_instances`."""
        self._require()
        profile = compute_profile(self.instance, profile_id)
        found = self.instance.compute_instances.values()
        return [MemoryComputeInstance(self, one) for one in found if one.profile == profile]

    @nvml_call("nvmlGpuInstanceGetComputeInstanceById", changes=True)
    def compute_instance(self, instance_id: int) -> MemoryComputeInstance:
        """See `GpuInstance.compute_instance`."""
        self._require()
        if instance_id not in self.instance.compute_instances:
            raise Refusal(ReturnCode.NOT_FOUND)
        return MemoryComputeInstance(self, self.instance.compute_instances[instance_id])

    @nvml_call("nvmlGpuInstanceDestroy", changes=True)
    def destroy(self) -> None:
        """See `GpuInstance.destroy`."""
        self._require()
        self.state.destroy(self.instance)

    def _require(self) -> None:
        if self.state.instances.get(self.instance.id) is not self.instance:
            raise Refusal(ReturnCode.INVALID_ARGUMENT)


@dataclass(frozen=True, eq=False)
class MemoryComputeInstance:
    """One compute instance in memory; equal to every other handle of it."""

    gpu_instance: MemoryGpuInstance
    compute: ComputeInstanceState

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryComputeInstance) and other.compute is self.compute

    def __hash__(self) -> int:
        return hash((self.gpu_instance, self.compute.id))

    @property
    def driver(self) -> Driver:
        """The driver it is a handle of."""
        return self.gpu_instance.driver

    @property
    def state(self) -> GpuState:
        """The GPU it is a part of."""
        return self.gpu_instance.state

    @nvml_call("nvmlComputeInstanceGetInfo_v2")
    def info(self) -> ComputeInstanceInfo:
        """See `ComputeInstance.info`."""
        require_alive(self.state, self.gpu_instance.instance, self.compute)
        return ComputeInstanceInfo(
            device=MemoryMigDevice(self.gpu_instance.gpu, self.gpu_instance.instance, self.compute),
            gpu_instance=self.gpu_instance,
            id=self.compute.id,
            profile_id=self.compute.profile.id,
            placement=self.compute.placement,
        )

    @nvml_call("nvmlComputeInstanceDestroy", changes=True)
    def destroy(self) -> None:
        """See `ComputeInstance.destroy`."""
        require_alive(self.state, self.gpu_instance.instance, self.compute)
        self.state.destroy_compute(self.gpu_instance.instance, self.compute)


@dataclass(frozen=True, eq=False)
class MemoryMigDevice:
    """One MIG device in memory; equal to every other handle of it."""

    gpu: MemoryGpu
    instance: GpuInstanceState
    compute: ComputeInstanceState

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryMigDevice) and other.compute is self.compute

    def __hash__(self) -> int:
        return hash((self.gpu, self.instance.id, self.compute.id))

    @property
    def driver(self) -> Driver:
        """The driver it is a handle of."""
        return self.gpu.driver

    @property
    def state(self) -> GpuState:
        """The GPU it is a part of."""
        return self.gpu.state

    @nvml_call("nvmlDeviceGetUUID")
    def uuid(self) -> str:
        """See `MigDevice.uuid`."""
        self._require()
        return self.compute.uuid

    @nvml_call("nvmlDeviceGetName")
    def name(self) -> str:
        """See `MigDevice.name`."""
        self._require()
        return f"{self.state.gpu.model.name} MIG {self.compute.profile.name}"

    @nvml_call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle")
    def parent(self) -> MemoryGpu:
        """See `MigDevice.parent`."""
        self._require()
        return self.gpu

    @nvml_call("nvmlDeviceGetGpuInstanceId")
    def gpu_instance_id(self) -> int:
        """See `MigDevice.gpu_instance_id`."""
        self._require()
        return self.instance.id

    @nvml_call("nvmlDeviceGetComputeInstanceId")
    def compute_instance_id(self) -> int:
        """See `MigDevice.compute_instance_id`."""
        self._require()
        return self.compute.id

    @nvml_call("nvmlDeviceGetAttributes_v2")
    def attributes(self) -> MigAttributes:
        """See `MigDevice.attributes`."""
        self._require()
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

    @nvml_call("nvmlDeviceGetMemoryInfo_v2")
    def memory(self) -> MemoryInfo:
        """See `MigDevice.memory`."""
        self._require()
        total = self.instance.row.memory_mib * _MIB
        used = self.state.used_in(self.instance.id)
        return MemoryInfo(total, total - used, used)

    def _require(self) -> None:
        require_alive(self.state, self.instance, self.compute)


def require_alive(state: GpuState, instance: GpuInstanceState, compute: ComputeInstanceState) -> None:
    """Refuses a handle whose compute instance, or GPU instance, was destroyed."""
    alive = state.instances.get(instance.id) is instance and instance.compute_instances.get(compute.id) is compute
    if not alive:
        raise Refusal(ReturnCode.INVALID_ARGUMENT)
