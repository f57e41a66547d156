"""What a DRA driver needs of NVML, as protocols: `Nvml` gives `Gpu`s, these give MIG devices and instances.

Each method is one NVML function, named in its docstring; failures can be injected and counted by that name.
Every method raises a subclass of `NvmlError`; besides what a docstring names, any call can raise `UninitializedError`,
`GpuIsLostError`, `NoPermissionError` and `UnknownNvmlError`. Handles of one library compare equal, and hash alike, when
they are of the same thing, so that they can be keys. Implementations: `real.RealNvml` and `memory.MemoryNvml`.
Source: nvml.h and the NVML API reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dra_driver_gpu.nvml.values import (
    AddressingMode,
    Architecture,
    Brand,
    ComputeInstanceProfile,
    ComputeInstanceProfileKind,
    ComputeMode,
    EccCounter,
    EccKind,
    EventType,
    GpuInstanceProfile,
    GpuInstanceProfileKind,
    MemoryInfo,
    MigAttributes,
    MigMode,
    PciInfo,
    Placement,
    Process,
    RecoveryAction,
    RemappedRows,
    VirtualizationMode,
)


class Nvml(Protocol):
    """The library: initialized before anything else, shut down as often as it was initialized."""

    def init(self) -> None:
        """`nvmlInitWithFlags(NO_GPUS)`: succeeds also where no GPU is left to NVML, all being passed through.

        Raises LibraryNotFoundError, DriverNotLoadedError, VersionMismatchError.
        """

    def shutdown(self) -> None:
        """`nvmlShutdown`: handles are void afterwards. Raises UninitializedError."""

    def driver_version(self) -> str:
        """`nvmlSystemGetDriverVersion`, such as `580.95.05`."""

    def cuda_version(self) -> int:
        """`nvmlSystemGetCudaDriverVersion_v2`: 1000 * major + 10 * minor, such as 13000."""

    def device_count(self) -> int:
        """`nvmlDeviceGetCount_v2`: GPUs with an index; a lost GPU keeps its index until the driver is reloaded."""

    def device_by_index(self, index: int) -> Gpu:
        """`nvmlDeviceGetHandleByIndex_v2`. Raises InvalidArgumentError past the last; NoPermissionError and
        GpuIsLostError where this GPU cannot be reached."""

    def device_by_uuid(self, uuid: str) -> Gpu:
        """`nvmlDeviceGetHandleByUUID` for a GPU's UUID. Raises NotFoundError."""

    def device_by_pci_address(self, address: str) -> Gpu:
        """`nvmlDeviceGetHandleByPciBusId_v2`; `0000:65:00.0` and `00000000:65:00.0` both do. Raises NotFoundError."""

    def create_event_set(self) -> EventSet:
        """`nvmlEventSetCreate`: an empty set, to be freed by whoever made it."""


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
        """`nvmlDeviceGetMemoryInfo_v2`. Raises NotSupportedError where GPU and host share their memory."""

    def pci(self) -> PciInfo:
        """`nvmlDeviceGetPciInfo_v3`."""

    def addressing_mode(self) -> AddressingMode:
        """`nvmlDeviceGetAddressingMode`. Raises NotSupportedError, FunctionNotFoundError."""

    def virtualization_mode(self) -> VirtualizationMode:
        """`nvmlDeviceGetVirtualizationMode`. Raises NotSupportedError."""

    def compute_mode(self) -> ComputeMode:
        """`nvmlDeviceGetComputeMode`. Raises NotSupportedError."""

    def set_compute_mode(self, mode: ComputeMode) -> None:
        """`nvmlDeviceSetComputeMode`. Raises NotSupportedError (MIG is on), NoPermissionError."""

    def persistence_mode(self) -> bool:
        """`nvmlDeviceGetPersistenceMode`. Raises NotSupportedError."""

    def set_persistence_mode(self, on: bool) -> None:
        """`nvmlDeviceSetPersistenceMode`. Raises NotSupportedError, NoPermissionError."""

    def processes(self) -> list[Process]:
        """Compute, graphics and MPS processes (`nvmlDeviceGet{Compute,Graphics,MPSCompute}RunningProcesses_v3`),
        each once, by pid. One without permission to see other containers' processes gets none of them."""

    def ecc_errors(self, kind: EccKind, counter: EccCounter) -> int:
        """`nvmlDeviceGetTotalEccErrors`. Raises NotSupportedError where ECC is off or missing."""

    def remapped_rows(self) -> RemappedRows:
        """`nvmlDeviceGetRemappedRows`. Raises NotSupportedError (before Ampere, or a MIG device)."""

    def recovery_action(self) -> RecoveryAction:
        """`nvmlDeviceGetFieldValues` of the recovery action. Raises NotSupportedError on drivers before R570."""

    def supported_events(self) -> EventType:
        """`nvmlDeviceGetSupportedEventTypes`."""

    def mig_mode(self) -> MigMode:
        """`nvmlDeviceGetMigMode`. Raises NotSupportedError where the GPU has no MIG."""

    def set_mig_mode(self, on: bool) -> None:
        """`nvmlDeviceSetMigMode`: raises both for the call's answer and for the activation status.

        Raises NotSupportedError (no MIG), InUseError (clients, or instances while switching off) and
        ResetRequiredError (a pass-through guest); after the latter two the pending mode may have changed.
        The minor number of the GPU may change.
        """

    def max_mig_devices(self) -> int:
        """`nvmlDeviceGetMaxMigDeviceCount`: one more than the highest MIG index; 0 where MIG is off."""

    def mig_device(self, index: int) -> MigDevice:
        """`nvmlDeviceGetMigDeviceHandleByIndex`. Raises NotFoundError for an index without a device (they have
        holes), NotSupportedError where MIG is off."""

    def gpu_instance_profile(self, kind: GpuInstanceProfileKind) -> GpuInstanceProfile:
        """`nvmlDeviceGetGpuInstanceProfileInfoV`. Raises NotSupportedError (no MIG, or not this profile) and
        InvalidArgumentError (a kind newer than the driver)."""

    def possible_placements(self, profile_id: int) -> list[Placement]:
        """`nvmlDeviceGetGpuInstancePossiblePlacements_v2`: of a profile's `id`, whether taken or not, MIG on or off."""

    def create_gpu_instance(self, profile_id: int, placement: Placement | None = None) -> GpuInstance:
        """`nvmlDeviceCreateGpuInstanceWithPlacement`, or `nvmlDeviceCreateGpuInstance` where the driver may place it.

        Raises NotSupportedError (MIG off, vGPU guest), InvalidArgumentError (no such profile or placement),
        InsufficientResourcesError (occupied, or the profile is used up), NoPermissionError.
        """

    def gpu_instances(self, profile_id: int) -> list[GpuInstance]:
        """`nvmlDeviceGetGpuInstances`: those of one profile, also without compute instance. NotSupportedError: MIG
        is off."""

    def gpu_instance(self, instance_id: int) -> GpuInstance:
        """`nvmlDeviceGetGpuInstanceById`. Raises NotFoundError, NotSupportedError (MIG off)."""


class MigDevice(Protocol):
    """One compute instance as something to run on. The handle is void once the instance is destroyed."""

    def uuid(self) -> str:
        """`nvmlDeviceGetUUID`, such as `MIG-c7384736-…`."""

    def name(self) -> str:
        """`nvmlDeviceGetName`: product and profile, such as `NVIDIA A100-SXM4-40GB MIG 1g.5gb`."""

    def parent(self) -> Gpu:
        """`nvmlDeviceGetDeviceHandleFromMigDeviceHandle`."""

    def gpu_instance_id(self) -> int:
        """`nvmlDeviceGetGpuInstanceId`."""

    def compute_instance_id(self) -> int:
        """`nvmlDeviceGetComputeInstanceId`: unique in its GPU instance only."""

    def attributes(self) -> MigAttributes:
        """`nvmlDeviceGetAttributes_v2`."""

    def memory(self) -> MemoryInfo:
        """`nvmlDeviceGetMemoryInfo_v2`."""


@dataclass(frozen=True)
class GpuInstanceInfo:
    """What a GPU instance is: `id` is free for reuse once it is destroyed."""

    gpu: Gpu
    id: int
    profile_id: int
    placement: Placement


@dataclass(frozen=True)
class ComputeInstanceInfo:
    """What a compute instance is; `device` is the MIG device that it makes."""

    device: MigDevice
    gpu_instance: GpuInstance
    id: int
    profile_id: int
    placement: Placement


class GpuInstance(Protocol):
    """A part of a GPU with memory and engines of its own. The handle is void once it is destroyed."""

    def info(self) -> GpuInstanceInfo:
        """`nvmlGpuInstanceGetInfo`."""

    def compute_instance_profile(self, kind: ComputeInstanceProfileKind) -> ComputeInstanceProfile:
        """`nvmlGpuInstanceGetComputeInstanceProfileInfoV`, engines shared. Raises NotSupportedError."""

    def create_compute_instance(self, profile_id: int) -> ComputeInstance:
        """`nvmlGpuInstanceCreateComputeInstance`. Raises InsufficientResourcesError, NotSupportedError."""

    def compute_instances(self, profile_id: int) -> list[ComputeInstance]:
        """`nvmlGpuInstanceGetComputeInstances`: those of one profile."""

    def compute_instance(self, instance_id: int) -> ComputeInstance:
        """`nvmlGpuInstanceGetComputeInstanceById`. Raises NotFoundError."""

    def destroy(self) -> None:
        """`nvmlGpuInstanceDestroy`. Raises InUseError while it has compute instances or processes."""


class ComputeInstance(Protocol):
    """A share of a GPU instance's multiprocessors. The handle is void once it is destroyed."""

    def info(self) -> ComputeInstanceInfo:
        """`nvmlComputeInstanceGetInfo_v2`."""

    def destroy(self) -> None:
        """`nvmlComputeInstanceDestroy`. Raises InUseError while processes run on it."""


@dataclass(frozen=True)
class Event:
    """One thing that happened on `gpu`: for an XID error, `data` is the XID.

    The instance ids are `WHOLE_GPU` where the event is not about a MIG device.
    """

    gpu: Gpu
    type: EventType
    data: int
    gpu_instance_id: int
    compute_instance_id: int


class EventSet(Protocol):
    """A queue of the events it was registered for."""

    def register(self, gpu: Gpu, types: EventType) -> None:
        """`nvmlDeviceRegisterEvents`; registering is of the physical GPU, for all MIG devices on it.

        Raises NotSupportedError where the GPU does not support one of `types`.
        """

    def wait(self, timeout_ms: int) -> Event | None:
        """`nvmlEventSetWait_v2`: the oldest event, or None once `timeout_ms` have passed.

        Raises GpuIsLostError as long as a registered GPU is lost; NVML does not say which one.
        """

    def free(self) -> None:
        """`nvmlEventSetFree`; the set is void afterwards."""
