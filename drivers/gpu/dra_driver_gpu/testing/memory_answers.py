"""The GPUs in memory behind the stub library, for a driver that runs as a process of its own.

    nvml = MemoryNvml([fake_gpu("H100-80GB")])
    with StubServer(MemoryAnswers(nvml)) as server:
        subprocess.run(["dra-sdk", "run", "gpu"], env={**os.environ, **server.environment})

The state is that of `nvml`, in the process of the test: MIG devices survive a restart of the driver, and the test
reads and changes them with the methods of `MemoryNvml`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final

from dra_driver_gpu.nvml.api import NvmlEvent
from dra_driver_gpu.nvml.errors import NvmlError, ReturnCode, error_of
from dra_driver_gpu.nvml.mig import ComputeInstanceProfileKind, GpuInstanceProfileKind, Placement
from dra_driver_gpu.nvml.values import ComputeMode, EccCounter, EccKind, EventType
from dra_driver_gpu.testing.nvml import MemoryNvml
from dra_driver_gpu.testing.nvml.handles import MemoryComputeInstance, MemoryGpu, MemoryGpuInstance, MemoryMigDevice
from dra_driver_gpu.testing.nvml.library import MemoryEventSet
from dra_driver_gpu.testing.nvml_stub import Answer

_HANDLES: Final = (MemoryGpu, MemoryMigDevice, MemoryGpuInstance, MemoryComputeInstance, MemoryEventSet)
_FIRST_HANDLE: Final = 0x1000
_RECOVERY_ACTION: Final = 230
_NOT_AVAILABLE: Final = (1 << 64) - 1


class MemoryAnswers:
    """Answers each call of the stub library with the same call of `nvml`."""

    def __init__(self, nvml: MemoryNvml) -> None:
        self.nvml = nvml
        self._handles: list[Any] = []

    def __call__(self, function: str, text: str, numbers: tuple[int, ...]) -> Answer:
        """See `Answers`."""
        try:
            if function in _OF_LIBRARY:
                return self._answer(_OF_LIBRARY[function](self.nvml, *numbers, *([text] if text else [])))
            if function == "nvmlDeviceRegisterEvents":
                gpu, types, events = numbers
                return self._answer(self._thing(events).register(self._thing(gpu), EventType(types)))
            return self._answer(_OF_HANDLE[function](self._thing(numbers[0]), *numbers[1:]))
        except NvmlError as error:
            return Answer(code=error.code)

    def _thing(self, handle: int) -> Any:
        return self._handles[handle - _FIRST_HANDLE]

    def _answer(self, result: Any) -> Answer:
        values = list(self._flat(result))
        texts = [value for value in values if isinstance(value, str)]
        return Answer(tuple(value for value in values if not isinstance(value, str)), "".join(texts))

    def _flat(self, result: Any) -> Iterator[int | str]:
        """Yield the numbers and texts of a result, and of everything in it."""
        if isinstance(result, _HANDLES):
            if result not in self._handles:
                self._handles.append(result)
            yield _FIRST_HANDLE + self._handles.index(result)
        elif is_dataclass(result):
            for field in fields(result):
                value = getattr(result, field.name)
                yield from self._flat(_NOT_AVAILABLE if value is None else value)
        elif isinstance(result, (list, tuple)):
            for item in result:
                yield from self._flat(item)
        elif result is not None:
            yield result if isinstance(result, str) else int(result)


def _without_kind(profile: Any) -> list[Any]:
    return [getattr(profile, field.name) for field in fields(profile) if field.name != "kind"]


def _gpu_profile(gpu: MemoryGpu, kind: int) -> list[Any]:
    return _without_kind(gpu.gpu_instance_profile(GpuInstanceProfileKind(kind)))


def _compute_profile(instance: MemoryGpuInstance, kind: int, _engines: int) -> list[Any]:
    return _without_kind(instance.compute_instance_profile(ComputeInstanceProfileKind(kind)))


def _wait(events: MemoryEventSet, timeout_ms: int) -> NvmlEvent:
    if (event := events.wait(timeout_ms)) is None:
        raise error_of("nvmlEventSetWait_v2", ReturnCode.TIMEOUT)
    return event


def _field(gpu: MemoryGpu, _count: int, field: int, _scope: int) -> tuple[int, int]:
    return (ReturnCode.SUCCESS, gpu.recovery_action()) if field == _RECOVERY_ACTION else (ReturnCode.NOT_SUPPORTED, 0)


_OF_LIBRARY: Final[dict[str, Callable[..., Any]]] = {
    "nvmlInitWithFlags": lambda nvml, _flags: nvml.init(),
    "nvmlShutdown": lambda nvml: nvml.shutdown(),
    "nvmlSystemGetDriverVersion": lambda nvml, _size: nvml.driver_version(),
    "nvmlSystemGetCudaDriverVersion_v2": lambda nvml: nvml.cuda_version(),
    "nvmlDeviceGetCount_v2": lambda nvml: nvml.device_count(),
    "nvmlDeviceGetHandleByIndex_v2": lambda nvml, index: nvml.device_by_index(index),
    "nvmlDeviceGetHandleByUUID": lambda nvml, uuid: nvml.device_by_uuid(uuid),
    "nvmlDeviceGetHandleByPciBusId_v2": lambda nvml, address: nvml.device_by_pci_address(address),
    "nvmlEventSetCreate": lambda nvml: nvml.create_event_set(),
}
_OF_HANDLE: Final[dict[str, Callable[..., Any]]] = {
    "nvmlEventSetFree": lambda events: events.free(),
    "nvmlEventSetWait_v2": _wait,
    "nvmlDeviceGetUUID": lambda device, _size: device.uuid(),
    "nvmlDeviceGetName": lambda gpu, _size: gpu.name(),
    "nvmlDeviceGetMinorNumber": lambda gpu: gpu.minor_number(),
    "nvmlDeviceGetModuleId": lambda gpu: gpu.module_id(),
    "nvmlDeviceGetBrand": lambda gpu: gpu.brand(),
    "nvmlDeviceGetArchitecture": lambda gpu: gpu.architecture(),
    "nvmlDeviceGetVirtualizationMode": lambda gpu: gpu.virtualization_mode(),
    "nvmlDeviceGetComputeMode": lambda gpu: gpu.compute_mode(),
    "nvmlDeviceSetComputeMode": lambda gpu, mode: gpu.set_compute_mode(ComputeMode(mode)),
    "nvmlDeviceGetPersistenceMode": lambda gpu: gpu.persistence_mode(),
    "nvmlDeviceSetPersistenceMode": lambda gpu, on: gpu.set_persistence_mode(bool(on)),
    "nvmlDeviceGetSupportedEventTypes": lambda gpu: gpu.supported_events(),
    "nvmlDeviceGetCudaComputeCapability": lambda gpu: gpu.compute_capability(),
    "nvmlDeviceGetPciInfo_v3": lambda gpu: gpu.pci(),
    "nvmlDeviceGetMemoryInfo": lambda gpu: gpu.memory(),  # the first three fields of the second version
    "nvmlDeviceGetMemoryInfo_v2": lambda gpu: gpu.memory(),
    "nvmlDeviceGetAddressingMode": lambda gpu: gpu.addressing_mode(),
    "nvmlDeviceGetComputeRunningProcesses_v3": lambda gpu: gpu.processes(),  # of all kinds
    "nvmlDeviceGetGraphicsRunningProcesses_v3": lambda _gpu: [],
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": lambda _gpu: [],
    "nvmlDeviceGetTotalEccErrors": lambda gpu, kind, counter: gpu.ecc_errors(EccKind(kind), EccCounter(counter)),
    "nvmlDeviceGetRemappedRows": lambda gpu: gpu.remapped_rows(),
    "nvmlDeviceGetFieldValues": _field,
    "nvmlDeviceGetMigMode": lambda gpu: gpu.mig_mode(),
    "nvmlDeviceSetMigMode": lambda gpu, on: gpu.set_mig_mode(bool(on)) or ReturnCode.SUCCESS,
    "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: gpu.max_mig_devices(),
    "nvmlDeviceGetMigDeviceHandleByIndex": lambda gpu, index: gpu.mig_device(index),
    "nvmlDeviceGetGpuInstanceId": lambda mig: mig.gpu_instance_id(),
    "nvmlDeviceGetComputeInstanceId": lambda mig: mig.compute_instance_id(),
    "nvmlDeviceGetAttributes_v2": lambda mig: mig.attributes(),
    "nvmlDeviceGetGpuInstanceProfileInfoV": _gpu_profile,
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2": lambda gpu, profile: gpu.possible_placements(profile),
    "nvmlDeviceCreateGpuInstance": lambda gpu, profile: gpu.create_gpu_instance(profile),
    "nvmlDeviceCreateGpuInstanceWithPlacement": lambda gpu, profile, *at: gpu.create_gpu_instance(
        profile, Placement(*at)
    ),
    "nvmlDeviceGetGpuInstances": lambda gpu, profile: gpu.gpu_instances(profile),
    "nvmlDeviceGetGpuInstanceById": lambda gpu, number: gpu.gpu_instance(number),
    "nvmlGpuInstanceGetInfo": lambda instance: instance.info(),
    "nvmlGpuInstanceDestroy": lambda instance: instance.destroy(),
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV": _compute_profile,
    "nvmlGpuInstanceCreateComputeInstance": lambda instance, profile: instance.create_compute_instance(profile),
    "nvmlGpuInstanceGetComputeInstances": lambda instance, profile: instance.compute_instances(profile),
    "nvmlGpuInstanceGetComputeInstanceById": lambda instance, number: instance.compute_instance(number),
    "nvmlComputeInstanceGetInfo_v2": lambda compute: compute.info(),
    "nvmlComputeInstanceDestroy": lambda compute: compute.destroy(),
}
