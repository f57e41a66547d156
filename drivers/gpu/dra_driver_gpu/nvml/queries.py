"""Answers that take several NVML calls: lists of GPUs, instances, MIG devices and processes, and whether MIG is on.

The functions raise what NVML answers unexpectedly: who changes a GPU must know its state. `OptionalQueries` goes on
without the answer: who describes a GPU can leave it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, TypeVar

from dra_driver_gpu.nvml.api import ComputeInstance, Gpu, GpuInstance, MigDevice, Nvml
from dra_driver_gpu.nvml.errors import (
    FunctionNotFoundError,
    InvalidArgumentError,
    NotFoundError,
    NotSupportedError,
    NvmlError,
    ReturnCode,
)
from dra_driver_gpu.nvml.mig import (
    ComputeInstanceProfile,
    ComputeInstanceProfileKind,
    GpuInstanceProfile,
    GpuInstanceProfileKind,
)
from dra_driver_gpu.nvml.values import GpuProcess
from dra_sdk.hardware import leave_out_fact

T = TypeVar("T")
_NOT_OFFERED: Final = (NotSupportedError, InvalidArgumentError, FunctionNotFoundError)
"""The answers for a profile that GPU or driver lack; drivers before R450 lack MIG and its functions altogether."""
_UNREACHABLE: Final = frozenset(
    {
        ReturnCode.UNINITIALIZED,
        ReturnCode.DRIVER_NOT_LOADED,
        ReturnCode.LIBRARY_NOT_FOUND,
        ReturnCode.GPU_IS_LOST,
        ReturnCode.RESET_REQUIRED,
        ReturnCode.LIB_RM_VERSION_MISMATCH,
    }
)
"""The answers which mean that the GPU or the driver cannot be reached, so that other queries fail as well."""


def ask_each_gpu(
    nvml: Nvml, ask: Callable[[Gpu], T], indices: Iterable[int] | None = None
) -> tuple[dict[int, T], dict[int, NvmlError]]:
    """Return the answers of all GPUs by index, and the errors of those that failed: one failure hides no other GPU.

    With `indices` only these GPUs are asked. Raises NvmlError if the library itself fails.
    """
    answers: dict[int, T] = {}
    errors: dict[int, NvmlError] = {}
    for index in range(nvml.device_count()) if indices is None else indices:
        try:
            answers[index] = ask(nvml.device_by_index(index))
        except NvmlError as error:
            errors[index] = error
    return answers, errors


def ask_offered(ask: Callable[[], T]) -> T | None:
    """Return an answer; None if GPU or driver do not offer it. Raises every other NvmlError."""
    try:
        return ask()
    except (NotSupportedError, FunctionNotFoundError):
        return None


class OptionalQueries:
    """Queries whose answer a description of a GPU can lack: no return code of them hides the GPU.

    Drivers answer with unexpected codes, for instance INVALID_ARGUMENT for the placements of a profile. Each is named
    as what a discovery leaves out. Errors which mean that the GPU or the driver cannot be reached are raised.

    `failed` are the UUIDs of the GPUs that gave such an unexpected answer, which may be different the next time.
    """

    def __init__(self) -> None:
        self.failed: set[str] = set()

    def for_one_reading(self) -> OptionalQueries:
        """Return the same queries with an empty `failed`."""
        return OptionalQueries()

    def ask(self, gpu: str, query: Callable[[], T]) -> T | None:
        """Return the answer of a query about the GPU with this UUID; None if there is none, or if an instance is gone.

        Raises GpuIsLostError, ResetRequiredError, and NvmlError if the driver cannot be reached.
        """
        try:
            return query()
        except (*_NOT_OFFERED, NotFoundError):
            return None
        except NvmlError as error:
            if error.code in _UNREACHABLE:
                raise
            self.failed.add(gpu)
            leave_out_fact(f"{gpu} {error.call}", f"{gpu} does not answer: {error}")
            return None

    def mig_enabled(self, uuid: str, gpu: Gpu) -> bool:
        """Return whether MIG is on. If the mode cannot be read, whether the GPU can have MIG devices now."""
        mode = self.ask(uuid, gpu.mig_mode)
        return mode.current if mode is not None else bool(self.ask(uuid, gpu.max_mig_devices))

    def profiles(self, uuid: str, gpu: Gpu) -> Iterator[GpuInstanceProfile]:
        """Yield the profiles of GPU instances that can be read."""
        for kind in GpuInstanceProfileKind:
            profile = self.ask(uuid, partial(gpu.gpu_instance_profile, kind))
            if profile is not None:
                yield profile

    def instances(self, uuid: str, gpu: Gpu, profile: int) -> list[GpuInstance]:
        """Return the GPU instances of a profile; none if they cannot be read."""
        return self.ask(uuid, partial(gpu.gpu_instances, profile)) or []

    def mig_devices(self, uuid: str, gpu: Gpu) -> list[MigDevice]:
        """Return the MIG devices of a GPU by index, without those that cannot be read."""
        indices = range(self.ask(uuid, gpu.max_mig_devices) or 0)
        devices = (self.ask(uuid, partial(gpu.mig_device, index)) for index in indices)
        return [device for device in devices if device is not None]


def mig_enabled(gpu: Gpu) -> bool:
    """Return whether MIG is on; False if GPU or driver lack MIG."""
    mode = ask_offered(gpu.mig_mode)
    return mode is not None and mode.current


def gpu_instance_profiles(gpu: Gpu) -> list[GpuInstanceProfile]:
    """Return the profiles that a GPU offers, MIG on or off; none if it has no MIG."""
    profiles = []
    for kind in GpuInstanceProfileKind:
        try:
            profiles.append(gpu.gpu_instance_profile(kind))
        except _NOT_OFFERED:
            continue
    return profiles


def gpu_instances(gpu: Gpu) -> list[GpuInstance]:
    """Return all GPU instances, also those without compute instance, which no MIG device shows; none with MIG off."""
    if not mig_enabled(gpu):
        return []
    return [instance for profile in gpu_instance_profiles(gpu) for instance in gpu.gpu_instances(profile.id)]


def compute_instance_profiles(instance: GpuInstance) -> list[ComputeInstanceProfile]:
    """Return the profiles that a GPU instance offers."""
    profiles = []
    for kind in ComputeInstanceProfileKind:
        try:
            profiles.append(instance.compute_instance_profile(kind))
        except _NOT_OFFERED:
            continue
    return profiles


def compute_instances(instance: GpuInstance) -> list[ComputeInstance]:
    """Return all compute instances of a GPU instance."""
    profiles = compute_instance_profiles(instance)
    return [compute for profile in profiles for compute in instance.compute_instances(profile.id)]


def merge_processes(*lists: Callable[[], list[GpuProcess]]) -> list[GpuProcess]:
    """Return the processes of all lists, each pid once; a list that GPU or driver do not keep counts as empty."""
    processes = {process.pid: process for ask in lists for process in ask_offered(ask) or ()}
    return list(processes.values())
