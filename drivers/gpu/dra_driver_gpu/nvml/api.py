"""NVML, narrowed to what a DRA driver needs, as protocols: `Nvml` gives `Gpu`s, which give MIG devices and instances.

Each method is one NVML function, named in its docstring; tests inject and count failures by that name. Every method
raises `NvmlError` or a subclass. In addition to what its docstring names, any call can fail with UNINITIALIZED,
GPU_IS_LOST, NO_PERMISSION or UNKNOWN. Two handles of one library are equal, and have the same hash, if they are handles
to the same thing, so they can be keys. Implementations: `real.RealNvml` and `memory.MemoryNvml`.
Source: nvml.h and the NVML API reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dra_driver_gpu.nvml.mig import (
    ComputeInstanceProfile,
    ComputeInstanceProfileKind,
    GpuInstanceProfile,
    GpuInstanceProfileKind,
    MigAttributes,
    MigMode,
    Placement,
)
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


class Nvml(Protocol):
    """The library. It is initialized before anything else, and shut down as often as it was initialized."""

    def init(self) -> None:
        """`nvmlInitWithFlags(NO_GPUS)`: succeeds also if all GPUs are passed through and NVML sees none.

        Raises LibraryNotFoundError, DriverNotLoadedError, or NvmlError with LIB_RM_VERSION_MISMATCH.
        """

    def shutdown(self) -> None:
        """`nvmlShutdown`: handles are invalid afterwards."""

    def driver_version(self) -> str:
        """`nvmlSystemGetDriverVersion`, such as `580.95.05`."""

    def cuda_version(self) -> int:
        """`nvmlSystemGetCudaDriverVersion_v2`: 1000 * major + 10 * minor, such as 13000."""

    def device_count(self) -> int:
        """`nvmlDeviceGetCount_v2`: GPUs with an index. A lost GPU keeps its index until the driver is reloaded."""

    def device_by_index(self, index: int) -> Gpu:
        """`nvmlDeviceGetHandleByIndex_v2`. Raises InvalidArgumentError past the last index, GpuIsLostError."""

    def device_by_uuid(self, uuid: str) -> Gpu:
        """`nvmlDeviceGetHandleByUUID` for the UUID of a GPU. Raises NotFoundError."""

    def device_by_pci_address(self, address: str) -> Gpu:
        """`nvmlDeviceGetHandleByPciBusId_v2`; takes `0000:65:00.0` and `00000000:65:00.0`. Raises NotFoundError."""

    def create_event_set(self) -> EventSet:
        """`nvmlEventSetCreate`: an empty set, which the caller must free."""


class Gpu(Protocol):
    """One physical GPU, or one virtual GPU inside a guest."""

    def uuid(self) -> str:
        """`nvmlDeviceGetUUID`, such as `GPU-2fa81118-…`."""

    def minor_number(self) -> int:
        """`nvmlDeviceGetMinorNumber`: N of `/dev/nvidiaN`."""

    def name(self) -> str:
        """`nvmlDeviceGetName`: the product, such as `NVIDIA A100-SXM4-40GB`."""

    def brand(self) -> Brand:
        """`nvmlDeviceGetBrand`; UNKNOWN for a number that is not listed."""

    def architecture(self) -> Architecture:
        """`nvmlDeviceGetArchitecture`; UNKNOWN for a number that is not listed."""

    def compute_capability(self) -> tuple[int, int]:
        """`nvmlDeviceGetCudaComputeCapability`: major and minor."""

    def memory(self) -> MemoryInfo:
        """`nvmlDeviceGetMemoryInfo_v2`. Raises NotSupportedError if GPU and host share their memory."""

    def pci(self) -> PciInfo:
        """`nvmlDeviceGetPciInfo_v3`."""

    def addressing_mode(self) -> AddressingMode:
        """`nvmlDeviceGetAddressingMode`. Raises NotSupportedError, FunctionNotFoundError."""

    def module_id(self) -> int:
        """`nvmlDeviceGetModuleId`: its place on a board with NVSwitches. Raises NotSupportedError."""

    def virtualization_mode(self) -> VirtualizationMode:
        """`nvmlDeviceGetVirtualizationMode`. Raises NotSupportedError."""

    def compute_mode(self) -> ComputeMode:
        """`nvmlDeviceGetComputeMode`. Raises NotSupportedError."""

    def set_compute_mode(self, mode: ComputeMode) -> None:
        """`nvmlDeviceSetComputeMode`. Raises NotSupportedError if MIG is on."""

    def persistence_mode(self) -> bool:
        """`nvmlDeviceGetPersistenceMode`. Raises NotSupportedError."""

    def set_persistence_mode(self, on: bool) -> None:
        """`nvmlDeviceSetPersistenceMode`. Raises NotSupportedError."""

    def processes(self) -> list[GpuProcess]:
        """Return compute, graphics and MPS processes, each pid once.

        `nvmlDeviceGet{Compute,Graphics,MPSCompute}RunningProcesses_v3`. A caller that may not see the processes of
        other containers gets none of them.
        """

    def ecc_errors(self, kind: EccKind, counter: EccCounter) -> int:
        """`nvmlDeviceGetTotalEccErrors`. Raises NotSupportedError if ECC is off or missing."""

    def remapped_rows(self) -> RemappedRows:
        """`nvmlDeviceGetRemappedRows`. Raises NotSupportedError before Ampere and while MIG devices exist."""

    def recovery_action(self) -> RecoveryAction:
        """`nvmlDeviceGetFieldValues` of the recovery action. Raises NotSupportedError on drivers before R570."""

    def supported_events(self) -> EventType:
        """`nvmlDeviceGetSupportedEventTypes`."""

    def mig_mode(self) -> MigMode:
        """`nvmlDeviceGetMigMode`. Raises NotSupportedError if the GPU has no MIG."""

    def set_mig_mode(self, on: bool) -> None:
        """`nvmlDeviceSetMigMode`: raises for the call's answer and for its activation status alike.

        Raises NotSupportedError (no MIG), InUseError (clients, or instances while turning it off) and
        ResetRequiredError (a passthrough guest); after the latter two the pending mode may have changed.
        The minor number of the GPU may change.
        """

    def max_mig_devices(self) -> int:
        """`nvmlDeviceGetMaxMigDeviceCount`: one more than the highest MIG index; 0 if MIG is off."""

    def mig_device(self, index: int) -> MigDevice:
        """`nvmlDeviceGetMigDeviceHandleByIndex`.

        Raises NotFoundError for an index without a device (indices have gaps), NotSupportedError if MIG is off.
        """

    def gpu_instance_profile(self, kind: GpuInstanceProfileKind) -> GpuInstanceProfile:
        """`nvmlDeviceGetGpuInstanceProfileInfoV`.

        Raises NotSupportedError (no MIG, or not this profile), InvalidArgumentError (a kind newer than the driver).
        """

    def possible_placements(self, profile_id: int) -> list[Placement]:
        """`nvmlDeviceGetGpuInstancePossiblePlacements_v2` for a profile's `id`: free or not, MIG on or off."""

    def create_gpu_instance(self, profile_id: int, placement: Placement | None = None) -> GpuInstance:
        """`nvmlDeviceCreateGpuInstanceWithPlacement`; without a placement `nvmlDeviceCreateGpuInstance`.

        Raises NotSupportedError (MIG off, vGPU guest), InvalidArgumentError (no such profile or placement),
        InsufficientResourcesError (occupied, or the profile is used up).
        """

    def gpu_instances(self, profile_id: int) -> list[GpuInstance]:
        """`nvmlDeviceGetGpuInstances`: those of one profile, with or without compute instances.

        Raises NotSupportedError if MIG is off.
        """

    def gpu_instance(self, instance_id: int) -> GpuInstance:
        """`nvmlDeviceGetGpuInstanceById`. Raises NotFoundError, NotSupportedError (MIG off)."""


class MigDevice(Protocol):
    """One compute instance as a device for CUDA. The handle is invalid once the instance is destroyed."""

    def uuid(self) -> str:
        """`nvmlDeviceGetUUID`, such as `MIG-c7384736-…`."""

    def gpu_instance_id(self) -> int:
        """`nvmlDeviceGetGpuInstanceId`."""

    def compute_instance_id(self) -> int:
        """`nvmlDeviceGetComputeInstanceId`: unique only within its GPU instance."""

    def attributes(self) -> MigAttributes:
        """`nvmlDeviceGetAttributes_v2`."""


@dataclass(frozen=True)
class GpuInstanceInfo:
    """What a GPU instance is (`nvmlGpuInstanceInfo_t`).

    gpu: the GPU that it is a part of.
    id: its number, which another instance may get once it is destroyed.
    profile_id: the `id` of its profile.
    placement: its memory slices.
    """

    gpu: Gpu
    id: int
    profile_id: int
    placement: Placement


@dataclass(frozen=True)
class ComputeInstanceInfo:
    """What a compute instance is (`nvmlComputeInstanceInfo_t`).

    device: the MIG device that it makes.
    gpu_instance: the GPU instance that it is a part of.
    id: its number within the GPU instance.
    profile_id: the `id` of its profile.
    placement: its compute slices.
    """

    device: MigDevice
    gpu_instance: GpuInstance
    id: int
    profile_id: int
    placement: Placement


class GpuInstance(Protocol):
    """A part of a GPU with its own memory and engines. The handle is invalid once the instance is destroyed."""

    def info(self) -> GpuInstanceInfo:
        """`nvmlGpuInstanceGetInfo`."""

    def compute_instance_profile(self, kind: ComputeInstanceProfileKind) -> ComputeInstanceProfile:
        """`nvmlGpuInstanceGetComputeInstanceProfileInfoV`, with shared engines. Raises NotSupportedError."""

    def create_compute_instance(self, profile_id: int) -> ComputeInstance:
        """`nvmlGpuInstanceCreateComputeInstance`. Raises InsufficientResourcesError, NotSupportedError."""

    def compute_instances(self, profile_id: int) -> list[ComputeInstance]:
        """`nvmlGpuInstanceGetComputeInstances`: those of one profile."""

    def compute_instance(self, instance_id: int) -> ComputeInstance:
        """`nvmlGpuInstanceGetComputeInstanceById`. Raises NotFoundError."""

    def destroy(self) -> None:
        """`nvmlGpuInstanceDestroy`. Raises InUseError while it has compute instances or processes."""


class ComputeInstance(Protocol):
    """A part of a GPU instance's multiprocessors. The handle is invalid once the instance is destroyed."""

    def info(self) -> ComputeInstanceInfo:
        """`nvmlComputeInstanceGetInfo_v2`."""

    def destroy(self) -> None:
        """`nvmlComputeInstanceDestroy`. Raises InUseError while processes run on it."""


@dataclass(frozen=True)
class NvmlEvent:
    """Something that happened on a GPU (`nvmlEventData_t`).

    gpu: the physical GPU.
    type: what happened.
    data: the XID if it is an XID error.
    gpu_instance_id: the GPU instance concerned; `WHOLE_GPU` if the event is not about a MIG device.
    compute_instance_id: the compute instance concerned; `WHOLE_GPU` likewise.
    """

    gpu: Gpu
    type: EventType
    data: int
    gpu_instance_id: int
    compute_instance_id: int


class EventSet(Protocol):
    """A queue of the events that it is registered for."""

    def register(self, gpu: Gpu, types: EventType) -> None:
        """`nvmlDeviceRegisterEvents` for a physical GPU and all its MIG devices.

        Raises NotSupportedError if the GPU does not support one of `types`.
        """

    def wait(self, timeout_ms: int) -> NvmlEvent | None:
        """`nvmlEventSetWait_v2`: the oldest event; None if there is none within `timeout_ms`.

        Raises GpuIsLostError as long as a registered GPU is lost; NVML does not say which one.
        """

    def free(self) -> None:
        """`nvmlEventSetFree`; the set is invalid afterwards."""
