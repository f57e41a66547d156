"""Names of MIG profiles, such as `1g.5gb+me`, and what takes several NVML calls: lists of GPUs and instances."""

from __future__ import annotations

import math
from typing import Final

from dra_driver_gpu.nvml.api import ComputeInstance, Gpu, GpuInstance, MigDevice, Nvml
from dra_driver_gpu.nvml.errors import FunctionNotFoundError, InvalidArgumentError, NotFoundError, NotSupportedError
from dra_driver_gpu.nvml.values import (
    ComputeInstanceProfile,
    ComputeInstanceProfileKind,
    GpuInstanceProfile,
    GpuInstanceProfileKind,
)

_GIB: Final = 1 << 30
_MIB: Final = 1 << 20
_NOT_OFFERED: Final = (NotSupportedError, InvalidArgumentError, FunctionNotFoundError)
"""What a profile that GPU or driver do not have answers with: before R450 there was no MIG, and no call about it."""

_SUFFIXES: Final = {
    GpuInstanceProfileKind.SLICE_1_REV1: "+me",
    GpuInstanceProfileKind.SLICE_2_REV1: "+me",
    GpuInstanceProfileKind.SLICE_1_GFX: "+gfx",
    GpuInstanceProfileKind.SLICE_2_GFX: "+gfx",
    GpuInstanceProfileKind.SLICE_3_GFX: "+gfx",
    GpuInstanceProfileKind.SLICE_4_GFX: "+gfx",
    GpuInstanceProfileKind.SLICE_1_NO_ME: "-me",
    GpuInstanceProfileKind.SLICE_2_NO_ME: "-me",
    GpuInstanceProfileKind.SLICE_1_ALL_ME: "+me.all",
    GpuInstanceProfileKind.SLICE_2_ALL_ME: "+me.all",
}


def profile_name(profile: GpuInstanceProfile, total_bytes: int, compute_slices: int | None = None) -> str:
    """The name of a profile on a GPU with this much memory, as nvidia-smi and the attribute `profile` have it.

    Memory is counted in eighths of the GPU's, which is rounded up to whole GiB. `compute_slices` other than the
    profile's own makes the name of a compute instance that is a share, such as `1c.3g.20gb`.
    """
    eighths = math.ceil(profile.memory_mib * _MIB / total_bytes * 8) / 8
    gigabytes = math.floor(eighths * math.ceil(total_bytes / _GIB) + 0.5)
    share = "" if compute_slices in {None, profile.slices} else f"{compute_slices}c."
    return f"{share}{profile.slices}g.{gigabytes}gb{_SUFFIXES.get(profile.kind, '')}"


def gpus(nvml: Nvml) -> list[Gpu]:
    """All GPUs by index. Raises where one of them cannot be reached; ask one by one to go on without it."""
    return [nvml.device_by_index(index) for index in range(nvml.device_count())]


def gpu_instance_profiles(gpu: Gpu) -> list[GpuInstanceProfile]:
    """The profiles that a GPU offers, MIG on or off; none where it has no MIG."""
    found = []
    for kind in GpuInstanceProfileKind:
        try:
            found.append(gpu.gpu_instance_profile(kind))
        except _NOT_OFFERED:
            continue
    return found


def gpu_instances(gpu: Gpu) -> list[GpuInstance]:
    """All GPU instances, also those without compute instance, which no MIG device shows; none where MIG is off."""
    if not mig_enabled(gpu):
        return []
    return [instance for profile in gpu_instance_profiles(gpu) for instance in gpu.gpu_instances(profile.id)]


def compute_instance_profiles(instance: GpuInstance) -> list[ComputeInstanceProfile]:
    """The profiles that a GPU instance can be cut into."""
    found = []
    for kind in ComputeInstanceProfileKind:
        try:
            found.append(instance.compute_instance_profile(kind))
        except _NOT_OFFERED:
            continue
    return found


def compute_instances(instance: GpuInstance) -> list[ComputeInstance]:
    """All compute instances of a GPU instance."""
    return [
        compute for profile in compute_instance_profiles(instance) for compute in instance.compute_instances(profile.id)
    ]


def mig_devices(gpu: Gpu) -> list[MigDevice]:
    """All MIG devices of a GPU by index; their indices have holes."""
    found = []
    for index in range(gpu.max_mig_devices()):
        try:
            found.append(gpu.mig_device(index))
        except NotFoundError:
            continue
    return found


def mig_enabled(gpu: Gpu) -> bool:
    """Whether MIG is on; False where GPU or driver do not have it."""
    try:
        return gpu.mig_mode().current
    except (NotSupportedError, FunctionNotFoundError):
        return False
