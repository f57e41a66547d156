"""Answers that take several NVML calls: lists of GPUs, instances, MIG devices and processes, and whether MIG is on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from dra_driver_gpu.nvml.api import ComputeInstance, Gpu, GpuInstance, MigDevice, Nvml
from dra_driver_gpu.nvml.errors import (
    FunctionNotFoundError,
    InvalidArgumentError,
    NotFoundError,
    NotSupportedError,
    NvmlError,
)
from dra_driver_gpu.nvml.mig import (
    ComputeInstanceProfile,
    ComputeInstanceProfileKind,
    GpuInstanceProfile,
    GpuInstanceProfileKind,
)
from dra_driver_gpu.nvml.values import Process

T = TypeVar("T")
Handle = TypeVar("Handle")
_NOT_OFFERED: Final = (NotSupportedError, InvalidArgumentError, FunctionNotFoundError)
"""The answers for a profile that GPU or driver lack; drivers before R450 lack MIG and its functions altogether."""
GONE: Final = (NotFoundError, InvalidArgumentError)
"""The answers of a handle whose instance has been destroyed."""


def ask_each_gpu(nvml: Nvml, ask: Callable[[Gpu], T]) -> tuple[dict[int, T], dict[int, NvmlError]]:
    """The answers of all GPUs by index, and the errors of those that failed: one failure hides no other GPU.

    Raises NvmlError if the library itself fails.
    """
    answers: dict[int, T] = {}
    errors: dict[int, NvmlError] = {}
    for index in range(nvml.device_count()):
        try:
            answers[index] = ask(nvml.device_by_index(index))
        except NvmlError as error:
            errors[index] = error
    return answers, errors


def ask_existing(handles: Iterable[Handle], ask: Callable[[Handle], T]) -> list[T]:
    """The answers of instances or MIG devices, without those that have been destroyed."""
    answers = []
    for each in handles:
        try:
            answers.append(ask(each))
        except GONE:
            continue
    return answers


def ask_optional(ask: Callable[[], T]) -> T | None:
    """An answer; None if GPU or driver do not offer it."""
    try:
        return ask()
    except (NotSupportedError, FunctionNotFoundError):
        return None


def mig_enabled(gpu: Gpu) -> bool:
    """Whether MIG is on; False if GPU or driver lack MIG."""
    mode = ask_optional(gpu.mig_mode)
    return mode is not None and mode.current


def gpu_instance_profiles(gpu: Gpu) -> list[GpuInstanceProfile]:
    """The profiles that a GPU offers, MIG on or off; none if it has no MIG."""
    found = []
    for kind in GpuInstanceProfileKind:
        try:
            found.append(gpu.gpu_instance_profile(kind))
        except _NOT_OFFERED:
            continue
    return found


def gpu_instances(gpu: Gpu) -> list[GpuInstance]:
    """All GPU instances, also those without a compute instance, which no MIG device shows; none if MIG is off."""
    if not mig_enabled(gpu):
        return []
    return [instance for profile in gpu_instance_profiles(gpu) for instance in gpu.gpu_instances(profile.id)]


def compute_instance_profiles(instance: GpuInstance) -> list[ComputeInstanceProfile]:
    """The profiles that a GPU instance offers."""
    found = []
    for kind in ComputeInstanceProfileKind:
        try:
            found.append(instance.compute_instance_profile(kind))
        except _NOT_OFFERED:
            continue
    return found


def compute_instances(instance: GpuInstance) -> list[ComputeInstance]:
    """All compute instances of a GPU instance."""
    profiles = compute_instance_profiles(instance)
    return [compute for profile in profiles for compute in instance.compute_instances(profile.id)]


def mig_devices(gpu: Gpu) -> list[MigDevice]:
    """All MIG devices of a GPU by index; indices have gaps."""
    found = []
    for index in range(gpu.max_mig_devices()):
        try:
            found.append(gpu.mig_device(index))
        except NotFoundError:
            continue
    return found


def merge_processes(*lists: Callable[[], list[Process]]) -> list[Process]:
    """The processes of all lists, each pid once; a list that GPU or driver do not keep counts as empty."""
    found = {process.pid: process for ask in lists for process in ask_optional(ask) or ()}
    return list(found.values())
