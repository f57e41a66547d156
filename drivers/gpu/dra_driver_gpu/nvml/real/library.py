"""The real NVML: finds `libnvidia-ml.so.1` under a driver root, loads nvidia-ml-py on it, and opens it.

nvidia-ml-py keeps its library in a module variable and knows no path but that of the dynamic loader. To use a library
at any path, and two libraries in one process, each library gets its own copy of the module.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from dra_driver_gpu.nvml.api import Gpu, NvmlEvent
from dra_driver_gpu.nvml.errors import LibraryNotFoundError, TimedOutError
from dra_driver_gpu.nvml.real.handles import Binding, RealGpu, ask
from dra_driver_gpu.nvml.values import EventType
from dra_sdk.hardware import host_paths

SONAME: Final = "libnvidia-ml.so.1"
_MODULE: Final = "pynvml"
_loaded: dict[str, ModuleType] = {}
_lock = threading.Lock()


class RealNvml:
    """The `Nvml` protocol over the library under `driver_root`, or over `library` if that is given.

    Nothing is loaded before `init`, so the driver may be installed later. The library is looked up again at each `init`
    that follows the last `shutdown`: an updated driver brings a new library, and the kernel module refuses the old one.
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
            raise TypeError(f"an event set takes GPUs of the same library, not {type(gpu).__name__}")
        ask(self._binding, "nvmlDeviceRegisterEvents", gpu.handle, int(types), self._handle)

    def wait(self, timeout_ms: int) -> NvmlEvent | None:
        """See `EventSet.wait`."""
        try:
            data = ask(self._binding, "nvmlEventSetWait_v2", self._handle, timeout_ms)
        except TimedOutError:
            return None
        return NvmlEvent(
            gpu=RealGpu(self._binding, data.device),
            type=EventType(data.eventType),
            data=int(data.eventData),
            gpu_instance_id=int(data.gpuInstanceId),
            compute_instance_id=int(data.computeInstanceId),
        )

    def free(self) -> None:
        """See `EventSet.free`."""
        ask(self._binding, "nvmlEventSetFree", self._handle)


def find_library(root: Path = Path("/")) -> str:
    """Return the path of the library under a driver root; the bare soname if `root` is `/` and has it elsewhere.

    Raises LibraryNotFoundError that lists the directories searched.
    """
    path = host_paths.find_library(root, SONAME)
    if path is not None:
        return str(path)
    if root == Path("/"):
        return SONAME
    searched = ", ".join(host_paths.LIBRARY_DIRS)
    raise LibraryNotFoundError("dlopen", detail=f"no {SONAME} under driver root {root} (searched {searched})")


def load(library: str) -> ModuleType:
    """Bind nvidia-ml-py to the library at this path; the same module for the same path.

    Raises LibraryNotFoundError if the package is missing or the library cannot be loaded.
    """
    with _lock:
        if library not in _loaded:
            _loaded[library] = _load(library, f"{__name__}.{_MODULE}{len(_loaded)}")
        return _loaded[library]


def _load(library: str, name: str) -> ModuleType:
    origin = importlib.util.find_spec(_MODULE)
    if origin is None or origin.origin is None:
        raise LibraryNotFoundError(
            "import pynvml", detail="nvidia-ml-py is not installed; it comes with the extra dra-sdk[gpu]"
        )
    spec = importlib.util.spec_from_file_location(name, origin.origin)
    if spec is None or spec.loader is None:
        raise LibraryNotFoundError("import pynvml", detail=f"{origin.origin} cannot be imported")
    try:
        handle = ctypes.CDLL(library)
    except OSError as error:
        raise LibraryNotFoundError("dlopen", detail=f"{library} cannot be loaded: {error}") from None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # nvidia-ml-py looks itself up while it creates its exception classes
    spec.loader.exec_module(module)
    vars(module)["nvmlLib"] = handle
    return module
