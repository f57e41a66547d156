"""Names of MIG profiles, and placements."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dra_driver_gpu.nvml.mig import GpuInstanceProfileKind as Kind
from dra_driver_gpu.nvml.mig import Placement, profile_name
from dra_driver_gpu.testing.nvml import MODELS
from dra_driver_gpu.testing.nvml.models import gpu_instance_profile

_BYTES = 40960 << 20
_PROFILE = gpu_instance_profile(MODELS["A100-40GB"].mig[0])


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Kind.SLICE_1, "1g.5gb"),
        (Kind.SLICE_1_REV1, "1g.5gb+me"),
        (Kind.SLICE_1_REV2, "1g.5gb"),
        (Kind.SLICE_1_GFX, "1g.5gb+gfx"),
        (Kind.SLICE_1_NO_ME, "1g.5gb-me"),
        (Kind.SLICE_1_ALL_ME, "1g.5gb+me.all"),
    ],
)
def test_the_suffix_says_which_engines_a_profile_has(kind, name):
    assert profile_name(replace(_PROFILE, kind=kind), _BYTES) == name


def test_a_smaller_compute_instance_has_its_compute_slices_in_its_name():
    three = replace(_PROFILE, slices=3, memory_mib=19968)
    assert profile_name(three, _BYTES, 1) == "1c.3g.20gb"
    assert profile_name(three, _BYTES, 3) == "3g.20gb"


@pytest.mark.parametrize(
    ("mib", "total_mib", "gigabytes"), [(71424, 143771, 71), (22528, 183359, 23), (46 << 10, 95 << 10, 48)]
)
def test_half_a_gigabyte_is_rounded_up(mib, total_mib, gigabytes):
    assert profile_name(replace(_PROFILE, memory_mib=mib), total_mib << 20) == f"1g.{gigabytes}gb"


@pytest.mark.parametrize(
    ("one", "other", "overlap"), [((0, 4), (4, 4), False), ((0, 4), (3, 1), True), ((2, 2), (0, 8), True)]
)
def test_placements_overlap(one, other, overlap):
    assert Placement(*one).overlaps(Placement(*other)) is overlap
    assert Placement(*other).overlaps(Placement(*one)) is overlap
