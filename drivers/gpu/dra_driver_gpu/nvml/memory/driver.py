"""What all handles of the in-memory NVML share: the GPUs, one lock, the event sets, and how a call is made."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from dra_driver_gpu.nvml.errors import ReturnCode, error_of
from dra_driver_gpu.nvml.memory.faults import Faults
from dra_driver_gpu.nvml.memory.models import FakeGpu
from dra_driver_gpu.nvml.memory.state import GpuState, Refusal
from dra_driver_gpu.nvml.values import EventType


@dataclass(frozen=True)
class Happening:
    """An event on its way to the event sets."""

    gpu_uuid: str
    type: EventType
    data: int
    gpu_instance_id: int
    compute_instance_id: int


@dataclass
class EventQueue:
    """What one event set is registered for, and what has happened since."""

    registered: dict[str, EventType] = field(default_factory=dict)
    waiting: deque[Happening] = field(default_factory=deque)
    freed: bool = False


class Driver:
    """The kernel's side: its GPUs outlive any library that is initialized on it."""

    def __init__(self, gpus: Iterable[FakeGpu], driver_version: str, cuda_version: int, *, privileged: bool) -> None:
        self.gpus = {gpu.uuid: GpuState.of(gpu) for gpu in gpus}
        self.driver_version = driver_version
        self.cuda_version = cuda_version
        self.privileged = privileged
        self.initialized = 0
        self.faults = Faults()
        self.queues: list[EventQueue] = []
        self.watchers: list[Callable[[GpuState], None]] = []
        self.changed = threading.Condition(threading.RLock())

    @contextmanager
    def call(self, name: str, gpu: GpuState | None = None, *, changes: bool = False) -> Iterator[None]:
        """Surrounds one NVML call: counts it, refuses what any call can be refused for, and names refusals."""
        with self.changed:
            afterwards = self.faults.enter(name)
            if not self.initialized and name != "nvmlInitWithFlags":
                raise error_of(name, ReturnCode.UNINITIALIZED)
            if gpu is not None and gpu.lost:
                raise error_of(name, ReturnCode.GPU_IS_LOST)
            if changes and not self.privileged:
                raise error_of(name, ReturnCode.NO_PERMISSION)
            try:
                yield
            except Refusal as refusal:
                raise error_of(name, refusal.code) from None
            if changes and gpu is not None:
                for watcher in self.watchers:
                    watcher(gpu)
            if afterwards is not None:
                raise afterwards

    def happen(self, happening: Happening) -> None:
        """Gives an event to every set that is registered for it."""
        with self.changed:
            for queue in self.queues:
                if happening.type & queue.registered.get(happening.gpu_uuid, EventType(0)):
                    queue.waiting.append(happening)
            self.changed.notify_all()


class Bound(Protocol):
    """A handle: something of one GPU of a driver."""

    @property
    def driver(self) -> Driver:
        """The driver it is a handle of."""

    @property
    def state(self) -> GpuState:
        """The GPU it is of."""


H = TypeVar("H", bound=Bound)
P = ParamSpec("P")
R = TypeVar("R")
Method = Callable[Concatenate[H, P], R]


def nvml_call(name: str, *, changes: bool = False) -> Callable[[Method[H, P, R]], Method[H, P, R]]:
    """Makes a method of a handle the NVML function of this name; `changes` asks for privilege."""

    def decorate(method: Method[H, P, R]) -> Method[H, P, R]:
        @functools.wraps(method)
        def run(self: H, /, *args: P.args, **kwargs: P.kwargs) -> R:
            with self.driver.call(name, self.state, changes=changes):
                return method(self, *args, **kwargs)

        return run

    return decorate
