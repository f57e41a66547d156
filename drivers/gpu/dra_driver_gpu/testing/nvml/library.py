"""The NVML library in memory: `MemoryNvml`, and what a test does to its GPUs.

    nvml = MemoryNvml([fake_gpu("A100-40GB", 0), fake_gpu("H100-80GB", 1)])
    nvml.init()
    nvml.add_process(nvml.gpus[0].uuid, pid=4711)
    nvml.inject_event(nvml.gpus[1].uuid, EventType.XID_CRITICAL_ERROR, 79)

The state belongs to the node, not to the library: it survives shutdown and init, as MIG devices survive a restart of
the driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from copy import deepcopy

from dra_driver_gpu.nvml.api import Gpu, NvmlEvent
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.values import (
    WHOLE_GPU,
    EccCounter,
    EccKind,
    EventType,
    GpuProcess,
    RecoveryAction,
    RemappedRows,
)
from dra_driver_gpu.testing.nvml.driver import EventQueue, KernelDriver, NvmlFaults, QueuedEvent
from dra_driver_gpu.testing.nvml.handles import MemoryGpu
from dra_driver_gpu.testing.nvml.models import FakeGpu
from dra_driver_gpu.testing.nvml.state import GpuState, ProcessKind, RefusedCallError


class MemoryNvml:
    """The `Nvml` protocol in memory. With `privileged=False` it refuses everything that needs root."""

    def __init__(
        self,
        gpus: Iterable[FakeGpu] = (),
        *,
        driver_version: str = "580.95.05",
        cuda_version: int = 13000,
        privileged: bool = True,
    ) -> None:
        self.gpus = tuple(gpus)
        self._driver = KernelDriver(self.gpus, driver_version, cuda_version, privileged=privileged)

    @property
    def faults(self) -> NvmlFaults:
        """The failures to come, and every call that was made."""
        return self._driver.faults

    @property
    def users(self) -> int:
        """How often NVML is initialized and not yet shut down; 0 means that it holds no GPU open."""
        return self._driver.initialized

    @property
    def event_sets(self) -> int:
        """How many event sets are not freed."""
        return len(self._driver.queues)

    def init(self) -> None:
        """See `Nvml.init`."""
        with self._driver.call("nvmlInitWithFlags"):
            self._driver.initialized += 1

    def shutdown(self) -> None:
        """See `Nvml.shutdown`."""
        with self._driver.call("nvmlShutdown"):
            self._driver.initialized -= 1

    def driver_version(self) -> str:
        """See `Nvml.driver_version`."""
        with self._driver.call("nvmlSystemGetDriverVersion"):
            return self._driver.driver_version

    def cuda_version(self) -> int:
        """See `Nvml.cuda_version`."""
        with self._driver.call("nvmlSystemGetCudaDriverVersion_v2"):
            return self._driver.cuda_version

    def device_count(self) -> int:
        """See `Nvml.device_count`."""
        with self._driver.call("nvmlDeviceGetCount_v2"):
            return len(self._driver.gpus)

    def device_by_index(self, index: int) -> MemoryGpu:
        """See `Nvml.device_by_index`."""
        with self._driver.call("nvmlDeviceGetHandleByIndex_v2"):
            states = list(self._driver.gpus.values())[index : index + 1]
            return self._handle(states, ReturnCode.INVALID_ARGUMENT)

    def device_by_uuid(self, uuid: str) -> MemoryGpu:
        """See `Nvml.device_by_uuid`."""
        with self._driver.call("nvmlDeviceGetHandleByUUID"):
            return self._handle([state for state in self._driver.gpus.values() if state.gpu.uuid == uuid])

    def device_by_pci_address(self, address: str) -> MemoryGpu:
        """See `Nvml.device_by_pci_address`."""
        with self._driver.call("nvmlDeviceGetHandleByPciBusId_v2"):
            wanted = _pci_numbers(address)
            return self._handle(
                [state for state in self._driver.gpus.values() if _pci_numbers(state.gpu.pci_address) == wanted]
            )

    def create_event_set(self) -> MemoryEventSet:
        """See `Nvml.create_event_set`."""
        with self._driver.call("nvmlEventSetCreate"):
            queue = EventQueue()
            self._driver.queues.append(queue)
            return MemoryEventSet(self._driver, queue)

    def _handle(self, states: list[GpuState], otherwise: ReturnCode = ReturnCode.NOT_FOUND) -> MemoryGpu:
        if not states:
            raise RefusedCallError(otherwise)
        if states[0].lost:
            raise RefusedCallError(ReturnCode.GPU_IS_LOST)
        return MemoryGpu(self._driver, states[0])

    # What a test does to the GPUs.

    def fail(
        self,
        call: str,
        failure: ReturnCode | BaseException,
        *,
        nth: int = 1,
        times: int = 1,
        after: bool = False,
    ) -> None:
        """Let the `nth` call of an NVML function fail: the same as `faults.fail`."""
        self.faults.fail(call, failure, nth=nth, times=times, after=after)

    def state(self, uuid: str) -> GpuState:
        """Return the state of a GPU, to be read or set."""
        return self._driver.gpus[uuid]

    def states(self) -> dict[str, GpuState]:
        """Return a copy of the state of each GPU that the kernel driver has, by UUID."""
        with self._driver.changed:
            return deepcopy(self._driver.gpus)

    def watch(self, watcher: Callable[[GpuState], None]) -> None:
        """Call `watcher` after each call that may have changed a GPU. It runs under the lock: it must not call NVML."""
        self._driver.watchers.append(watcher)

    def add_process(
        self,
        uuid: str,
        pid: int,
        *,
        used_bytes: int | None = None,
        gpu_instance_id: int = WHOLE_GPU,
        compute_instance_id: int = WHOLE_GPU,
        kind: ProcessKind = ProcessKind.COMPUTE,
    ) -> None:
        """Start a process on a GPU, or on one of its MIG devices."""
        with self._driver.changed:
            process = GpuProcess(pid, used_bytes, gpu_instance_id, compute_instance_id)
            self.state(uuid).processes.append((kind, process))

    def end_process(self, pid: int) -> None:
        """End a process on every GPU."""
        with self._driver.changed:
            for state in self._driver.gpus.values():
                state.processes = [(kind, process) for kind, process in state.processes if process.pid != pid]

    def inject_event(
        self,
        uuid: str,
        event: EventType,
        data: int = 0,
        *,
        gpu_instance_id: int = WHOLE_GPU,
        compute_instance_id: int = WHOLE_GPU,
    ) -> None:
        """Give an event to every event set that is registered for it; a later set does not get it."""
        self._driver.send(QueuedEvent(uuid, event, data, gpu_instance_id, compute_instance_id))

    def lose(self, uuid: str) -> None:
        """Let a GPU fall off the bus: every call on it fails until `reset`, waiting for events included."""
        with self._driver.changed:
            self.state(uuid).lost = True
            self._driver.changed.notify_all()

    def reset(self, uuid: str) -> None:
        """Reset a GPU, which also brings a lost one back. Its instances and processes are gone."""
        with self._driver.changed:
            self.state(uuid).reset()
            for watcher in self._driver.watchers:
                watcher(self.state(uuid))

    def unbind(self, uuid: str) -> GpuState:
        """Take a GPU from the kernel driver, so that NVML no longer knows it. `bind` with the result brings it back."""
        with self._driver.changed:
            return self._driver.gpus.pop(uuid)

    def bind(self, state: GpuState) -> None:
        """Give an unbound GPU back to the kernel driver, reset."""
        with self._driver.changed:
            state.reset()
            self._driver.gpus[state.gpu.uuid] = state

    def set_ecc_errors(self, uuid: str, kind: EccKind, counter: EccCounter, count: int) -> None:
        """Set an ECC counter."""
        with self._driver.changed:
            self.state(uuid).ecc[kind, counter] = count

    def set_remapped_rows(self, uuid: str, rows: RemappedRows) -> None:
        """Set the remapped rows."""
        with self._driver.changed:
            self.state(uuid).rows = rows

    def set_recovery_action(self, uuid: str, action: RecoveryAction) -> None:
        """Set what the driver says must happen to the GPU."""
        with self._driver.changed:
            self.state(uuid).recovery_action = action


class MemoryEventSet:
    """The `EventSet` protocol in memory."""

    def __init__(self, driver: KernelDriver, queue: EventQueue) -> None:
        self._driver = driver
        self._queue = queue

    def register(self, gpu: Gpu, types: EventType) -> None:
        """See `EventSet.register`."""
        if not isinstance(gpu, MemoryGpu):
            raise TypeError(f"an event set takes GPUs of the same library, not {type(gpu).__name__}")
        with self._driver.call("nvmlDeviceRegisterEvents", gpu.state):
            self._require_valid()
            if types & ~gpu.state.supported_events:
                raise RefusedCallError(ReturnCode.NOT_SUPPORTED)
            registered = self._queue.registered
            registered[gpu.state.gpu.uuid] = registered.get(gpu.state.gpu.uuid, EventType(0)) | types

    def wait(self, timeout_ms: int) -> NvmlEvent | None:
        """See `EventSet.wait`."""
        with self._driver.call("nvmlEventSetWait_v2"):
            self._require_valid()
            until = time.monotonic() + timeout_ms / 1000
            while not self._queue.waiting and not self._lost() and time.monotonic() < until:
                self._driver.changed.wait(until - time.monotonic())
                self._require_valid()
            if self._queue.waiting:
                return self._event(self._queue.waiting.popleft())
            if self._lost():
                raise RefusedCallError(ReturnCode.GPU_IS_LOST)
            return None

    def free(self) -> None:
        """See `EventSet.free`."""
        with self._driver.call("nvmlEventSetFree"):
            self._require_valid()
            self._queue.freed = True
            self._driver.queues.remove(self._queue)
            self._driver.changed.notify_all()

    def _require_valid(self) -> None:
        if self._queue.freed:
            raise RefusedCallError(ReturnCode.INVALID_ARGUMENT)

    def _lost(self) -> bool:
        return any(uuid in self._driver.gpus and self._driver.gpus[uuid].lost for uuid in self._queue.registered)

    def _event(self, queued: QueuedEvent) -> NvmlEvent:
        return NvmlEvent(
            gpu=MemoryGpu(self._driver, self._driver.gpus[queued.gpu_uuid]),
            type=queued.type,
            data=queued.data,
            gpu_instance_id=queued.gpu_instance_id,
            compute_instance_id=queued.compute_instance_id,
        )


def _pci_numbers(address: str) -> tuple[int, ...]:
    """Parse domain, bus and device of an address in either spelling; INVALID_ARGUMENT for anything else."""
    try:
        return tuple(int(part, 16) for part in address.split(".", maxsplit=1)[0].split(":"))
    except ValueError:
        raise RefusedCallError(ReturnCode.INVALID_ARGUMENT) from None
