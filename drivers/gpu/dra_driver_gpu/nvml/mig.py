"""What NVML reports about MIG: profiles and their names, placements, modes, and what a MIG device has. No I/O.

A GPU is divided into GPU instances, which have their own memory and engines; a GPU instance is divided into compute
instances, which share these and have their own multiprocessors. Each compute instance is one MIG device.
Source: nvml.h and the MIG user guide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

_GIB: Final = 1 << 30
_MIB: Final = 1 << 20


class GpuInstanceProfileKind(IntEnum):
    """`NVML_GPU_INSTANCE_PROFILE_*`: the number by which a profile is queried; its `id` is another number."""

    SLICE_1 = 0
    SLICE_2 = 1
    SLICE_3 = 2
    SLICE_4 = 3
    SLICE_7 = 4
    SLICE_8 = 5
    SLICE_6 = 6
    SLICE_1_REV1 = 7
    SLICE_2_REV1 = 8
    SLICE_1_REV2 = 9
    SLICE_1_GFX = 10
    SLICE_2_GFX = 11
    SLICE_4_GFX = 12
    SLICE_1_NO_ME = 13
    SLICE_2_NO_ME = 14
    SLICE_1_ALL_ME = 15
    SLICE_2_ALL_ME = 16
    SLICE_3_GFX = 17


class ComputeInstanceProfileKind(IntEnum):
    """`NVML_COMPUTE_INSTANCE_PROFILE_*`: the number by which a profile is queried."""

    SLICE_1 = 0
    SLICE_2 = 1
    SLICE_3 = 2
    SLICE_4 = 3
    SLICE_7 = 4
    SLICE_8 = 5
    SLICE_6 = 6
    SLICE_1_REV1 = 7
    SLICE_7_NVL = 8


@dataclass(frozen=True)
class MigMode:
    """Whether MIG is on (`nvmlDeviceGetMigMode`).

    current: MIG is on now.
    pending: MIG is on after the next reset.
    """

    current: bool
    pending: bool


@dataclass(frozen=True, order=True)
class Placement:
    """The slices of an instance: of memory for a GPU instance, of compute for a compute instance.

    start: the first slice.
    size: how many slices.
    """

    start: int
    size: int

    def overlaps(self, other: Placement) -> bool:
        """Return whether both have a slice in common."""
        return self.start < other.start + other.size and other.start < self.start + self.size


@dataclass(frozen=True)
class GpuInstanceProfile:
    """A size of GPU instance (`nvmlGpuInstanceProfileInfo_v2_t`).

    kind: the number by which it was queried.
    id: the number that creates an instance of it.
    name: the driver's name, such as `1g.5gb+me`; empty if the driver is too old to report it.
    slices: compute slices.
    instances: how many fit on an empty GPU.
    multiprocessors: streaming multiprocessors.
    copy_engines: copy engines.
    decoders: video decoders (NVDEC).
    encoders: video encoders (NVENC).
    jpeg_engines: JPEG decoders.
    ofa_engines: optical flow accelerators.
    memory_mib: memory in MiB.
    p2p: peer-to-peer transfers work.
    """

    kind: GpuInstanceProfileKind
    id: int
    name: str
    slices: int
    instances: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    memory_mib: int
    p2p: bool = False


@dataclass(frozen=True)
class ComputeInstanceProfile:
    """A size of compute instance (`nvmlComputeInstanceProfileInfo_v2_t`). Engines belong to the GPU instance.

    kind: the number by which it was queried.
    id: the number that creates an instance of it.
    name: the driver's name, such as `1c.3g.20gb`; empty if the driver is too old to report it.
    slices: compute slices.
    instances: how many fit in an empty GPU instance.
    multiprocessors: its own streaming multiprocessors.
    shared_copy_engines: copy engines of the GPU instance.
    shared_decoders: video decoders of the GPU instance.
    shared_encoders: video encoders of the GPU instance.
    shared_jpeg_engines: JPEG decoders of the GPU instance.
    shared_ofa_engines: optical flow accelerators of the GPU instance.
    """

    kind: ComputeInstanceProfileKind
    id: int
    name: str
    slices: int
    instances: int
    multiprocessors: int
    shared_copy_engines: int
    shared_decoders: int
    shared_encoders: int
    shared_jpeg_engines: int
    shared_ofa_engines: int


@dataclass(frozen=True)
class MigAttributes:
    """What one MIG device has (`nvmlDeviceAttributes_t`). Engines and memory belong to the GPU instance.

    multiprocessors: its own streaming multiprocessors.
    shared_copy_engines: copy engines of the GPU instance.
    shared_decoders: video decoders of the GPU instance.
    shared_encoders: video encoders of the GPU instance.
    shared_jpeg_engines: JPEG decoders of the GPU instance.
    shared_ofa_engines: optical flow accelerators of the GPU instance.
    gpu_instance_slices: compute slices of the GPU instance.
    compute_instance_slices: its own compute slices.
    memory_mib: memory of the GPU instance in MiB.
    """

    multiprocessors: int
    shared_copy_engines: int
    shared_decoders: int
    shared_encoders: int
    shared_jpeg_engines: int
    shared_ofa_engines: int
    gpu_instance_slices: int
    compute_instance_slices: int
    memory_mib: int


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
    """Return the name of a profile on a GPU with this much memory, as nvidia-smi and the attribute `profile` write it.

    The gigabytes are the GPU's memory, rounded up to whole GiB, times the profile's share in eighths. If
    `compute_slices` differs from the profile's own, the name is that of a smaller compute instance: `1c.3g.20gb`.
    """
    eighths = math.ceil(profile.memory_mib * _MIB / total_bytes * 8) / 8
    gigabytes = math.floor(eighths * math.ceil(total_bytes / _GIB) + 0.5)
    share = "" if compute_slices in {None, profile.slices} else f"{compute_slices}c."
    return f"{share}{profile.slices}g.{gigabytes}gb{_SUFFIXES.get(profile.kind, '')}"
