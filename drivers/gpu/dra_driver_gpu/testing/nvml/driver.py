"""The kernel driver in memory: its GPUs, one lock, the queues of event sets, and failures that a test asks for.

    nvml.faults.fail("nvmlGpuInstanceDestroy", ReturnCode.IN_USE, nth=2)
    nvml.faults.fail_call(7, KilledError())      # the process dies in the seventh call from now

Functions are named as in nvml.h. A failure is the NvmlError of a return code, or any exception that is given.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from dra_driver_gpu.nvml.errors import ReturnCode, error_of
from dra_driver_gpu.nvml.values import EventType
from dra_driver_gpu.testing.nvml.models import FakeGpu
from dra_driver_gpu.testing.nvml.state import GpuState, RefusedCallError


@dataclass
class Fault:
    """A failure of some calls of one function, or of any function.

    call: the NVML function; None for any.
    failure: the return code that is answered, or the exception that is raised.
    nth: the call that fails, counted from 1.
    times: how many calls fail, from `nth` on.
    after: the call takes effect before it fails.
    gpu: the UUID of the GPU whose calls fail; empty for all calls.
    """

    call: str | None
    failure: ReturnCode | BaseException
    nth: int
    times: int
    after: bool
    gpu: str = ""

    def count(self, call: str, gpu: str) -> bool:
        """Count one call about a GPU; True if it fails."""
        if self.call not in {None, call} or self.gpu not in {"", gpu}:
            return False
        self.nth -= 1
        return -self.times < self.nth <= 0

    @property
    def used_up(self) -> bool:
        """Whether no later call fails because of it."""
        return self.nth <= -self.times + 1

    def error(self, call: str) -> BaseException:
        """Return what `call` raises."""
        return self.failure if isinstance(self.failure, BaseException) else error_of(call, self.failure)


class NvmlFaults:
    """The failures to come. `calls` lists every call that was made."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._faults: list[Fault] = []

    def fail(
        self,
        call: str,
        failure: ReturnCode | BaseException = ReturnCode.UNKNOWN,
        *,
        nth: int = 1,
        times: int = 1,
        after: bool = False,
        gpu: str = "",
    ) -> None:
        """Let the `nth` call of this function from now on fail, and `times` - 1 calls after it.

        With `after` the call takes effect before it fails, like a call whose answer is lost. With `gpu`, a UUID, only
        calls about this GPU count.
        """
        self._faults.append(Fault(call, failure, nth, times, after, gpu))

    def fail_call(
        self, nth: int, failure: ReturnCode | BaseException = ReturnCode.UNKNOWN, *, after: bool = False
    ) -> None:
        """Let the `nth` call from now on fail, whichever function it is."""
        self._faults.append(Fault(None, failure, nth, 1, after))

    def clear(self) -> None:
        """Forget the failures to come and the calls that were made."""
        self._faults.clear()
        self.calls.clear()

    def enter(self, call: str, gpu: str = "") -> BaseException | None:
        """Record a call. Raises if it fails before its effect; returns what it must raise after its effect."""
        self.calls.append(call)
        due = [fault for fault in self._faults if fault.count(call, gpu)]
        self._faults = [fault for fault in self._faults if not fault.used_up]
        if not due:
            return None
        if due[0].after:
            return due[0].error(call)
        raise due[0].error(call)


@dataclass(frozen=True)
class QueuedEvent:
    """An event on its way to the event sets.

    gpu_uuid: the physical GPU.
    type: what happened.
    data: the XID if it is an XID error.
    gpu_instance_id: the GPU instance concerned, or `WHOLE_GPU`.
    compute_instance_id: the compute instance concerned, or `WHOLE_GPU`.
    """

    gpu_uuid: str
    type: EventType
    data: int
    gpu_instance_id: int
    compute_instance_id: int


@dataclass
class EventQueue:
    """The kernel's side of one event set.

    registered: the event types it is registered for, by GPU.
    waiting: events that `wait` has not returned yet, the oldest first.
    freed: the set is invalid.
    """

    registered: dict[str, EventType] = field(default_factory=dict)
    waiting: deque[QueuedEvent] = field(default_factory=deque)
    freed: bool = False


class KernelDriver:
    """The kernel's side. Its GPUs outlive every library that is initialized on it."""

    def __init__(self, gpus: Iterable[FakeGpu], driver_version: str, cuda_version: int, *, privileged: bool) -> None:
        self.gpus = {gpu.uuid: GpuState.of(gpu) for gpu in gpus}
        self.driver_version = driver_version
        self.cuda_version = cuda_version
        self.privileged = privileged
        self.initialized = 0
        self.faults = NvmlFaults()
        self.queues: list[EventQueue] = []
        self.watchers: list[Callable[[GpuState], None]] = []
        self.changed = threading.Condition(threading.RLock())

    @contextmanager
    def call(self, name: str, gpu: GpuState | None = None, *, changes: bool = False) -> Iterator[None]:
        """Run one NVML call: count it, check what any call can fail for, and turn refusals into NvmlErrors."""
        with self.changed:
            afterwards = self.faults.enter(name, "" if gpu is None else gpu.gpu.uuid)
            if not self.initialized and name != "nvmlInitWithFlags":
                raise error_of(name, ReturnCode.UNINITIALIZED)
            if gpu is not None and gpu.lost:
                raise error_of(name, ReturnCode.GPU_IS_LOST)
            if changes and not self.privileged:
                raise error_of(name, ReturnCode.NO_PERMISSION)
            try:
                yield
            except RefusedCallError as refused:
                raise error_of(name, refused.code) from None
            if changes and gpu is not None:
                for watcher in self.watchers:
                    watcher(gpu)
            if afterwards is not None:
                raise afterwards

    def send(self, event: QueuedEvent) -> None:
        """Give an event to every set that is registered for it."""
        with self.changed:
            for queue in self.queues:
                if event.type & queue.registered.get(event.gpu_uuid, EventType(0)):
                    queue.waiting.append(event)
            self.changed.notify_all()


class Bound(Protocol):
    """A handle to something on one GPU of a driver."""

    @property
    def driver(self) -> KernelDriver:
        """The driver."""

    @property
    def state(self) -> GpuState:
        """The GPU."""


H = TypeVar("H", bound=Bound)
P = ParamSpec("P")
R = TypeVar("R")
Method = Callable[Concatenate[H, P], R]


def nvml_call(name: str, *, changes: bool = False) -> Callable[[Method[H, P, R]], Method[H, P, R]]:
    """Make a method of a handle the NVML function of this name; `changes` needs privilege."""

    def decorate(method: Method[H, P, R]) -> Method[H, P, R]:
        @functools.wraps(method)
        def run(self: H, /, *args: P.args, **kwargs: P.kwargs) -> R:
            with self.driver.call(name, self.state, changes=changes):
                return method(self, *args, **kwargs)

        return run

    return decorate
