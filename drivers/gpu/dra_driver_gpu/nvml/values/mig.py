"""What a GPU can be cut into, and what its parts are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class GpuInstanceProfileKind(IntEnum):
    """`NVML_GPU_INSTANCE_PROFILE_*`: what a GPU is asked about; the id of a profile is another number."""

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
    """`NVML_COMPUTE_INSTANCE_PROFILE_*`."""

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
    """Whether MIG is on, and whether it will be after the next reset."""

    current: bool
    pending: bool


@dataclass(frozen=True, order=True)
class Placement:
    """Slices [start, start + size): of memory for a GPU instance, of compute for a compute instance."""

    start: int
    size: int

    def overlaps(self, other: Placement) -> bool:
        """Whether both have a slice in common."""
        return self.start < other.start + other.size and other.start < self.start + self.size


@dataclass(frozen=True)
class GpuInstanceProfile:
    """A size in which a GPU can be cut.

    `kind` is what was asked for, `id` the number that creating takes. `name` is the driver's, such as `1g.5gb+me`,
    empty where it is too old to tell. `slices` counts compute slices, `instances` how many fit on an empty GPU.
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

    @property
    def graphics(self) -> bool:
        """Whether graphics APIs work in it; such profiles are kinds of their own."""
        return self.kind in _GRAPHICS


_GRAPHICS: Final = frozenset(kind for kind in GpuInstanceProfileKind if kind.name.endswith("_GFX"))


@dataclass(frozen=True)
class ComputeInstanceProfile:
    """A size in which a GPU instance can be cut; engines are shared by its compute instances."""

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
    """What one MIG device has (`nvmlDeviceGetAttributes_v2`)."""

    multiprocessors: int
    shared_copy_engines: int
    shared_decoders: int
    shared_encoders: int
    shared_jpeg_engines: int
    shared_ofa_engines: int
    gpu_instance_slices: int
    compute_instance_slices: int
    memory_mib: int
