"""A stub of `libnvidia-ml.so.1`, so that tests use the real binding through its binary interface.

    library = build_stub(tmp_path)
    state = StubState(tmp_path / "nvml", [fake_gpu("A100-40GB")])
    os.environ.update(state.environment)
    nvml = RealNvml(library=library)

The library keeps all state in the text file that `NVML_STUB_STATE` names (see stub/state.h), under a lock. So a driver
and a container see the same GPUs, MIG devices survive a restart of either, and a test can change the file.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.memory import FakeGpu, ProcessKind
from dra_driver_gpu.nvml.memory.models import compute_instance_profiles
from dra_driver_gpu.nvml.memory.state import GpuState
from dra_driver_gpu.nvml.real.library import SONAME
from dra_driver_gpu.nvml.values import (
    WHOLE_GPU,
    ComputeMode,
    EccCounter,
    EccKind,
    EventType,
    RecoveryAction,
    RemappedRows,
)
from dra_sdk import SettingsError

STATE_VARIABLE: Final = "NVML_STUB_STATE"
SOURCES: Final = Path(__file__).with_name("stub")
_FLAGS: Final = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden")
_UNKNOWN: Final = -1
_MODE_COMPUTE: Final = 4
_MODE_PERSISTENCE: Final = 5
_MODE_LOST: Final = 6
_MODE_RECOVERY: Final = 7


class GpuControl(Protocol):
    """What a test does to GPUs, by UUID; implemented by `MemoryNvml` and `StubState`."""

    def fail(self, call: str, failure: ReturnCode, *, nth: int = 1, times: int = 1, after: bool = False) -> None:
        """Let the `nth` call of an NVML function fail, and `times` - 1 after it; with `after` it takes effect first."""

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

    def end_process(self, pid: int) -> None:
        """End a process on every GPU."""

    def inject_event(
        self,
        uuid: str,
        event: EventType,
        data: int = 0,
        *,
        gpu_instance_id: int = WHOLE_GPU,
        compute_instance_id: int = WHOLE_GPU,
    ) -> None:
        """Give an event to every event set that is registered for it now."""

    def lose(self, uuid: str) -> None:
        """Let a GPU fall off the bus: every call on it fails until it is reset."""

    def reset(self, uuid: str) -> None:
        """Reset a GPU, which also brings a lost one back. Its instances and processes are gone."""

    def set_ecc_errors(self, uuid: str, kind: EccKind, counter: EccCounter, count: int) -> None:
        """Set an ECC counter."""

    def set_remapped_rows(self, uuid: str, rows: RemappedRows) -> None:
        """Set the remapped rows."""

    def set_recovery_action(self, uuid: str, action: RecoveryAction) -> None:
        """Set what the driver says must happen to the GPU."""


def build_stub(directory: Path, *, compiler: str = "gcc", without: Iterable[str] = ()) -> Path:
    """Compile the stub to `directory`/libnvidia-ml.so.1 and return its path.

    `without` names functions that the library lacks, like that of an older driver. Raises SettingsError without a
    compiler, and if it fails.
    """
    if shutil.which(compiler) is None:
        raise SettingsError(f"the NVML stub needs the C compiler {compiler}, which is not on PATH")
    library = directory / SONAME
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    renamed = [f"-D{name}={name}_absent" for name in without]
    command = [compiler, *_FLAGS, *renamed, f"-Wl,-soname,{SONAME}", "-o", str(library), *sources, "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SettingsError(f"the NVML stub does not compile: {done.stderr.strip()}")
    return library


class StubState:
    """The state file of the stub: written with these GPUs, then changed by the methods of `GpuControl`."""

    def __init__(
        self,
        path: Path,
        gpus: Iterable[FakeGpu],
        *,
        driver_version: str = "580.95.05",
        cuda_version: int = 13000,
        privileged: bool = True,
    ) -> None:
        self.path = path
        self.gpus = tuple(gpus)
        head = [f"driver {driver_version}", f"cuda {cuda_version}", f"privileged {int(privileged)}"]
        self._replace([*head, *(line for index, gpu in enumerate(self.gpus) for line in _gpu_lines(index, gpu))])

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that uses the stub."""
        return {STATE_VARIABLE: str(self.path)}

    def fail(self, call: str, failure: ReturnCode, *, nth: int = 1, times: int = 1, after: bool = False) -> None:
        """See `GpuControl.fail`. A function that nvidia-ml-py calls twice for one answer counts twice."""
        self._change(lambda lines: [*lines, f"fail {call} {nth} {times} {int(failure)} {int(after)}"])

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
        """See `GpuControl.add_process`."""
        used = _UNKNOWN if used_bytes is None else used_bytes
        listed = list(ProcessKind).index(kind)
        line = f"process {self._index(uuid)} {pid} {used} {gpu_instance_id} {compute_instance_id} {listed}"
        self._change(lambda lines: [*lines, line])

    def end_process(self, pid: int) -> None:
        """See `GpuControl.end_process`."""
        self._change(lambda lines: [line for line in lines if not _is(line, "process", None, pid)])

    def inject_event(
        self,
        uuid: str,
        event: EventType,
        data: int = 0,
        *,
        gpu_instance_id: int = WHOLE_GPU,
        compute_instance_id: int = WHOLE_GPU,
    ) -> None:
        """See `GpuControl.inject_event`."""
        rest = f"{self._index(uuid)} {int(event)} {data} {gpu_instance_id} {compute_instance_id}"

        def append(lines: list[str]) -> list[str]:
            serials = [int(line.split()[1]) for line in lines if _is(line, "event")]
            return [*lines, f"event {max(serials, default=0) + 1} {rest}"]

        self._change(append)

    def lose(self, uuid: str) -> None:
        """See `GpuControl.lose`."""
        self._set_mode(uuid, _MODE_LOST, 1)

    def reset(self, uuid: str) -> None:
        """See `GpuControl.reset`."""
        index = self._index(uuid)
        persists = not self.gpus[index].model.toggles_live

        def kept_lines(lines: list[str]) -> list[str]:
            kept = [line for line in lines if not any(_is(line, word, index) for word in ("gi", "ci", "process"))]
            return [_reset_mode(line, persists=persists) if _is(line, "mode", index) else line for line in kept]

        self._change(kept_lines)

    def set_ecc_errors(self, uuid: str, kind: EccKind, counter: EccCounter, count: int) -> None:
        """See `GpuControl.set_ecc_errors`."""
        self._change(lambda lines: [*lines, f"ecc {self._index(uuid)} {int(kind)} {int(counter)} {count}"])

    def set_remapped_rows(self, uuid: str, rows: RemappedRows) -> None:
        """See `GpuControl.set_remapped_rows`."""
        numbers = f"{rows.correctable} {rows.uncorrectable} {int(rows.pending)} {int(rows.failed)}"
        self._change(lambda lines: [*lines, f"rows {self._index(uuid)} {numbers}"])

    def set_recovery_action(self, uuid: str, action: RecoveryAction) -> None:
        """See `GpuControl.set_recovery_action`."""
        self._set_mode(uuid, _MODE_RECOVERY, int(action))

    def set_compute_mode(self, uuid: str, mode: ComputeMode) -> None:
        """Set the compute mode, as an operator does."""
        self._set_mode(uuid, _MODE_COMPUTE, int(mode))

    def set_persistence(self, uuid: str, *, on: bool) -> None:
        """Set the persistence mode, as an operator does."""
        self._set_mode(uuid, _MODE_PERSISTENCE, int(on))

    def _index(self, uuid: str) -> int:
        return [gpu.uuid for gpu in self.gpus].index(uuid)

    def _set_mode(self, uuid: str, field: int, value: int) -> None:
        def change(line: str) -> str:
            parts = line.split()
            parts[field] = str(value)
            return " ".join(parts)

        index = self._index(uuid)
        self._change(lambda lines: [change(line) if _is(line, "mode", index) else line for line in lines])

    def _change(self, change: Callable[[list[str]], list[str]]) -> None:
        with self._locked():
            self._replace(change(self.path.read_text(encoding="utf-8").splitlines()))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self.path.with_name(f"{self.path.name}.lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _replace(self, lines: list[str]) -> None:
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}.test")
        fresh.write_text("\n".join(lines) + "\n", encoding="utf-8")
        fresh.replace(self.path)


def _is(line: str, word: str, *numbers: int | None) -> bool:
    """Whether a line begins with `word` and these numbers, None for any."""
    first, *rest = line.split()
    return first == word and all(
        wanted is None or str(wanted) == is_ for wanted, is_ in zip(numbers, rest, strict=False)
    )


def _reset_mode(line: str, *, persists: bool) -> str:
    _, index, _, pending, _, persistence, *_ = line.split()
    mig = pending if persists else "0"
    return f"mode {index} {mig} {mig} 0 {persistence} 0 0"


def _gpu_lines(index: int, gpu: FakeGpu) -> Iterator[str]:
    """A GPU as the stub reads it; stub/state.h explains the words."""
    model = gpu.model
    domain, bus, device = gpu.pci_address.removesuffix(".0").split(":")
    numbers = [
        *model.compute_capability,
        _UNKNOWN if model.memory_mib is None else model.memory_mib,
        _UNKNOWN if model.addressing_mode is None else int(model.addressing_mode),
        int(gpu.virtualization),
        int(gpu.ecc),
        int(gpu.guest),
        int(model.toggles_live),
    ]
    pci = f"{domain} {bus} {device} {gpu.pci_device_id:x}"
    words = " ".join(map(str, [int(model.architecture), int(model.brand), *numbers]))
    events = f"{int(GpuState.of(gpu).supported_events):x}"
    yield f"gpu {index} {gpu.uuid} {gpu.minor} {pci} {words} {events} {model.name}"
    yield f"mode {index} {int(gpu.mig)} {int(gpu.mig)} 0 0 0 0"
    yield from _profile_lines(index, gpu)


def _profile_lines(index: int, gpu: FakeGpu) -> Iterator[str]:
    for row in gpu.model.mig:
        numbers = [int(row.kind), row.id, row.slices, row.instances, row.multiprocessors, row.memory_mib, *row.engines]
        starts = ",".join(map(str, row.starts))
        yield f"profile {index} {' '.join(map(str, numbers))} {row.size} {starts} {row.name}"
        for cut in compute_instance_profiles(gpu.model, row):
            shares = f"{int(cut.kind)} {cut.id} {cut.slices} {cut.instances} {cut.multiprocessors}"
            yield f"cut {index} {row.id} {shares} {cut.name}"
