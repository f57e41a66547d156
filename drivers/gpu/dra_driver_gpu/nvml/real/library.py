"""The real NVML: `RealNvml` over nvidia-ml-py, and its event sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dra_driver_gpu.nvml.api import Event, Gpu
from dra_driver_gpu.nvml.errors import TimedOutError
from dra_driver_gpu.nvml.real.binding import find_library, load
from dra_driver_gpu.nvml.real.calls import Binding, ask
from dra_driver_gpu.nvml.real.gpu import RealGpu
from dra_driver_gpu.nvml.values import EventType


class RealNvml:
    """The `Nvml` protocol over the library found under `driver_root`, or over `library` where that is given.

    Nothing is loaded before `init`, so that a node whose driver comes later can be waited for. The library is looked
    for again whenever nobody used it: a driver that is renewed brings a new one, and the old one fits it no more.
    """

    def __init__(self, driver_root: Path = Path("/"), *, library: Path | None = None) -> None:
        self._driver_root = driver_root
        self._library = library
        self._loaded: Binding = None
        self._users = 0

    @property
    def _binding(self) -> Binding:
        if self._loaded is None:
            self._loaded = load(str(self._library) if self._library else find_library(self._driver_root))
        return self._loaded

    def init(self) -> None:
        """See `Nvml.init`."""
        if not self._users:
            self._loaded = None
        ask(self._binding, "nvmlInitWithFlags", self._binding.NVML_INIT_FLAG_NO_GPUS)
        self._users += 1

    def shutdown(self) -> None:
        """See `Nvml.shutdown`."""
        ask(self._binding, "nvmlShutdown")
        self._users -= 1

    def driver_version(self) -> str:
        """See `Nvml.driver_version`."""
        return str(ask(self._binding, "nvmlSystemGetDriverVersion"))

    def cuda_version(self) -> int:
        """See `Nvml.cuda_version`."""
        return int(ask(self._binding, "nvmlSystemGetCudaDriverVersion_v2"))

    def device_count(self) -> int:
        """See `Nvml.device_count`."""
        return int(ask(self._binding, "nvmlDeviceGetCount", call="nvmlDeviceGetCount_v2"))

    def device_by_index(self, index: int) -> RealGpu:
        """See `Nvml.device_by_index`."""
        return self._gpu("nvmlDeviceGetHandleByIndex", index, call="nvmlDeviceGetHandleByIndex_v2")

    def device_by_uuid(self, uuid: str) -> RealGpu:
        """See `Nvml.device_by_uuid`."""
        return self._gpu("nvmlDeviceGetHandleByUUID", uuid.encode())

    def device_by_pci_address(self, address: str) -> RealGpu:
        """See `Nvml.device_by_pci_address`."""
        return self._gpu("nvmlDeviceGetHandleByPciBusId", address.encode(), call="nvmlDeviceGetHandleByPciBusId_v2")

    def create_event_set(self) -> RealEventSet:
        """See `Nvml.create_event_set`."""
        return RealEventSet(self._binding, ask(self._binding, "nvmlEventSetCreate"))

    def _gpu(self, name: str, argument: int | bytes, *, call: str = "") -> RealGpu:
        return RealGpu(self._binding, ask(self._binding, name, argument, call=call))


class RealEventSet:
    """The `EventSet` protocol over an `nvmlEventSet_t`."""

    def __init__(self, binding: Binding, handle: Any) -> None:
        self._binding = binding
        self._handle = handle

    def register(self, gpu: Gpu, types: EventType) -> None:
        """See `EventSet.register`."""
        if not isinstance(gpu, RealGpu):
            raise TypeError(f"a GPU of this library is wanted, not {type(gpu).__name__}")
        ask(self._binding, "nvmlDeviceRegisterEvents", gpu.handle, int(types), self._handle)

    def wait(self, timeout_ms: int) -> Event | None:
        """See `EventSet.wait`."""
        try:
            data = ask(self._binding, "nvmlEventSetWait_v2", self._handle, timeout_ms)
        except TimedOutError:
            return None
        return Event(
            gpu=RealGpu(self._binding, data.device),
            type=EventType(data.eventType),
            data=int(data.eventData),
            gpu_instance_id=int(data.gpuInstanceId),
            compute_instance_id=int(data.computeInstanceId),
        )

    def free(self) -> None:
        """See `EventSet.free`."""
        ask(self._binding, "nvmlEventSetFree", self._handle)
