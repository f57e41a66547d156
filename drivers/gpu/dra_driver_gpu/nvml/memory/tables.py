"""The MIG profiles of the GPUs that the in-memory NVML offers, as rows of numbers.

Sources: `nvidia-smi mig -lgip` and `-lgipp` of A100, A30, H100, H200, B200 and RTX PRO 6000 (server edition), and the
MIG user guide for engines and placements. Where the guide and `-lgip` differ, `-lgip` is taken: the guide has no
decoder in A30's 1g.6gb. Memory differs a little between releases of the driver: 2g.35gb of H200 was also seen with
33024 MiB, 1g.23gb of B200 with 22528.

Of B200 multiprocessors, memory and numbers of instances are `-lgip`'s for every profile, ids and engines for those of
one and two slices. Derived are of 3g.90gb, 4g.90gb and 7g.180gb: the ids, which are those of all GPUs with eight memory
slices; decoders and JPEG engines, one for each slice as in the smaller ones and in H100 (the guide has one for every
profile); copy engines are the guide's. Placements are H100's: GPU instances that were seen on a B200 (3 to 5 of two
slices, 9 and 13 of one) have the numbers that follow from them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dra_driver_gpu.nvml.values import GpuInstanceProfileKind as Kind
from dra_driver_gpu.nvml.values import Placement


@dataclass(frozen=True)
class MigRow:
    """One profile: `starts` are the memory slices at which it can be placed, `size` how many it takes.

    The engines are copy, decoder, encoder, JPEG and OFA (optical flow), in this order.
    """

    kind: Kind
    id: int
    name: str
    slices: int
    instances: int
    multiprocessors: int
    memory_mib: int
    engines: tuple[int, int, int, int, int]
    starts: tuple[int, ...]
    size: int

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Everywhere this profile can be placed on an empty GPU."""
        return tuple(Placement(start, self.size) for start in self.starts)


_ONES = (0, 1, 2, 3, 4, 5, 6)
_PAIRS = (0, 2, 4, 6)
_FIRST_PAIRS = (0, 2, 4)
_HALVES = (0, 4)
_WHOLE = (0,)
_QUARTERS_OF_12 = (0, 3, 6, 9)
_HALVES_OF_12 = (0, 6)

A100_40GB = (
    MigRow(Kind.SLICE_1, 19, "1g.5gb", 1, 7, 14, 4864, (1, 0, 0, 0, 0), _ONES, 1),
    MigRow(Kind.SLICE_1_REV1, 20, "1g.5gb+me", 1, 1, 14, 4864, (1, 1, 0, 1, 1), _ONES, 1),
    MigRow(Kind.SLICE_1_REV2, 15, "1g.10gb", 1, 4, 14, 9856, (1, 1, 0, 0, 0), _PAIRS, 2),
    MigRow(Kind.SLICE_2, 14, "2g.10gb", 2, 3, 28, 9856, (2, 1, 0, 0, 0), _FIRST_PAIRS, 2),
    MigRow(Kind.SLICE_3, 9, "3g.20gb", 3, 2, 42, 19968, (3, 2, 0, 0, 0), _HALVES, 4),
    MigRow(Kind.SLICE_4, 5, "4g.20gb", 4, 1, 56, 19968, (4, 2, 0, 0, 0), _WHOLE, 4),
    MigRow(Kind.SLICE_7, 0, "7g.40gb", 7, 1, 98, 40192, (7, 5, 0, 1, 1), _WHOLE, 8),
)
A100_80GB = (
    MigRow(Kind.SLICE_1, 19, "1g.10gb", 1, 7, 14, 9728, (1, 0, 0, 0, 0), _ONES, 1),
    MigRow(Kind.SLICE_1_REV1, 20, "1g.10gb+me", 1, 1, 14, 9728, (1, 1, 0, 1, 1), _ONES, 1),
    MigRow(Kind.SLICE_1_REV2, 15, "1g.20gb", 1, 4, 14, 19968, (1, 1, 0, 0, 0), _PAIRS, 2),
    MigRow(Kind.SLICE_2, 14, "2g.20gb", 2, 3, 28, 19968, (2, 1, 0, 0, 0), _FIRST_PAIRS, 2),
    MigRow(Kind.SLICE_3, 9, "3g.40gb", 3, 2, 42, 40192, (3, 2, 0, 0, 0), _HALVES, 4),
    MigRow(Kind.SLICE_4, 5, "4g.40gb", 4, 1, 56, 40192, (4, 2, 0, 0, 0), _WHOLE, 4),
    MigRow(Kind.SLICE_7, 0, "7g.80gb", 7, 1, 98, 80896, (7, 5, 0, 1, 1), _WHOLE, 8),
)
A30_24GB = (
    MigRow(Kind.SLICE_1, 14, "1g.6gb", 1, 4, 14, 5952, (1, 1, 0, 0, 0), (0, 1, 2, 3), 1),
    MigRow(Kind.SLICE_1_REV1, 21, "1g.6gb+me", 1, 1, 14, 5952, (1, 1, 0, 1, 1), (0, 1, 2, 3), 1),
    MigRow(Kind.SLICE_2, 5, "2g.12gb", 2, 2, 28, 11968, (2, 2, 0, 0, 0), (0, 2), 2),
    MigRow(Kind.SLICE_2_REV1, 6, "2g.12gb+me", 2, 1, 28, 11968, (2, 2, 0, 1, 1), (0, 2), 2),
    MigRow(Kind.SLICE_4, 0, "4g.24gb", 4, 1, 56, 24000, (4, 4, 0, 1, 1), _WHOLE, 4),
)
H100_80GB = (
    MigRow(Kind.SLICE_1, 19, "1g.10gb", 1, 7, 16, 9984, (1, 1, 0, 1, 0), _ONES, 1),
    MigRow(Kind.SLICE_1_REV1, 20, "1g.10gb+me", 1, 1, 16, 9984, (1, 1, 0, 1, 1), _ONES, 1),
    MigRow(Kind.SLICE_1_REV2, 15, "1g.20gb", 1, 4, 26, 20096, (1, 1, 0, 1, 0), _PAIRS, 2),
    MigRow(Kind.SLICE_2, 14, "2g.20gb", 2, 3, 32, 20096, (2, 2, 0, 2, 0), _FIRST_PAIRS, 2),
    MigRow(Kind.SLICE_3, 9, "3g.40gb", 3, 2, 60, 40448, (3, 3, 0, 3, 0), _HALVES, 4),
    MigRow(Kind.SLICE_4, 5, "4g.40gb", 4, 1, 64, 40448, (4, 4, 0, 4, 0), _WHOLE, 4),
    MigRow(Kind.SLICE_7, 0, "7g.80gb", 7, 1, 132, 81152, (8, 7, 0, 7, 1), _WHOLE, 8),
)
H200_141GB = (
    MigRow(Kind.SLICE_1, 19, "1g.18gb", 1, 7, 16, 16384, (1, 1, 0, 1, 0), _ONES, 1),
    MigRow(Kind.SLICE_1_REV1, 20, "1g.18gb+me", 1, 1, 16, 16384, (1, 1, 0, 1, 1), _ONES, 1),
    MigRow(Kind.SLICE_1_REV2, 15, "1g.35gb", 1, 4, 26, 33280, (1, 1, 0, 1, 0), _PAIRS, 2),
    MigRow(Kind.SLICE_2, 14, "2g.35gb", 2, 3, 32, 33280, (2, 2, 0, 2, 0), _FIRST_PAIRS, 2),
    MigRow(Kind.SLICE_3, 9, "3g.71gb", 3, 2, 60, 71424, (3, 3, 0, 3, 0), _HALVES, 4),
    MigRow(Kind.SLICE_4, 5, "4g.71gb", 4, 1, 64, 71424, (4, 4, 0, 4, 0), _WHOLE, 4),
    MigRow(Kind.SLICE_7, 0, "7g.141gb", 7, 1, 132, 143360, (8, 7, 0, 7, 1), _WHOLE, 8),
)
B200_180GB = (
    MigRow(Kind.SLICE_1, 19, "1g.23gb", 1, 7, 18, 20992, (2, 1, 0, 1, 0), _ONES, 1),
    MigRow(Kind.SLICE_1_REV1, 20, "1g.23gb+me", 1, 1, 18, 20992, (2, 1, 0, 1, 1), _ONES, 1),
    MigRow(Kind.SLICE_1_REV2, 15, "1g.45gb", 1, 4, 30, 45312, (2, 1, 0, 1, 0), _PAIRS, 2),
    MigRow(Kind.SLICE_2, 14, "2g.45gb", 2, 3, 36, 45312, (4, 2, 0, 2, 0), _FIRST_PAIRS, 2),
    MigRow(Kind.SLICE_3, 9, "3g.90gb", 3, 2, 70, 91136, (6, 3, 0, 3, 0), _HALVES, 4),
    MigRow(Kind.SLICE_4, 5, "4g.90gb", 4, 1, 72, 91136, (8, 4, 0, 4, 0), _WHOLE, 4),
    MigRow(Kind.SLICE_7, 0, "7g.180gb", 7, 1, 148, 182784, (16, 7, 0, 7, 1), _WHOLE, 8),
)
RTX_PRO_6000_96GB = (
    MigRow(Kind.SLICE_1, 14, "1g.24gb", 1, 4, 46, 24192, (1, 1, 1, 1, 0), _QUARTERS_OF_12, 3),
    MigRow(Kind.SLICE_1_REV1, 21, "1g.24gb+me", 1, 1, 46, 24192, (1, 1, 1, 1, 1), _QUARTERS_OF_12, 3),
    MigRow(Kind.SLICE_1_GFX, 47, "1g.24gb+gfx", 1, 4, 46, 24192, (1, 1, 1, 1, 0), _QUARTERS_OF_12, 3),
    MigRow(Kind.SLICE_1_ALL_ME, 65, "1g.24gb+me.all", 1, 1, 46, 24192, (1, 4, 4, 4, 1), _QUARTERS_OF_12, 3),
    MigRow(Kind.SLICE_1_NO_ME, 67, "1g.24gb-me", 1, 4, 46, 24192, (1, 0, 0, 0, 0), _QUARTERS_OF_12, 3),
    MigRow(Kind.SLICE_2, 5, "2g.48gb", 2, 2, 94, 48512, (2, 2, 2, 2, 0), _HALVES_OF_12, 6),
    MigRow(Kind.SLICE_2_GFX, 35, "2g.48gb+gfx", 2, 2, 94, 48512, (2, 2, 2, 2, 0), _HALVES_OF_12, 6),
    MigRow(Kind.SLICE_2_ALL_ME, 64, "2g.48gb+me.all", 2, 1, 94, 48512, (2, 4, 4, 4, 1), _HALVES_OF_12, 6),
    MigRow(Kind.SLICE_2_NO_ME, 66, "2g.48gb-me", 2, 2, 94, 48512, (2, 0, 0, 0, 0), _HALVES_OF_12, 6),
    MigRow(Kind.SLICE_4, 0, "4g.96gb", 4, 1, 188, 97408, (4, 4, 4, 4, 1), _WHOLE, 12),
    MigRow(Kind.SLICE_4_GFX, 32, "4g.96gb+gfx", 4, 1, 188, 97408, (4, 4, 4, 4, 1), _WHOLE, 12),
)
