"""Names of MIG profiles."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dra_driver_gpu.nvml.memory import MODELS
from dra_driver_gpu.nvml.memory.models import gpu_instance_profile
from dra_driver_gpu.nvml.profiles import profile_name
from dra_driver_gpu.nvml.values import GpuInstanceProfileKind as Kind

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
def test_suffix_says_which_engines(kind, name):
    assert profile_name(replace(_PROFILE, kind=kind), _BYTES) == name


def test_graphics_profiles_are_kinds_of_their_own():
    assert replace(_PROFILE, kind=Kind.SLICE_3_GFX).graphics is True
    assert _PROFILE.graphics is False


def test_a_share_says_how_many_compute_slices():
    three = replace(_PROFILE, slices=3, memory_mib=19968)
    assert profile_name(three, _BYTES, 1) == "1c.3g.20gb"
    assert profile_name(three, _BYTES, 3) == "3g.20gb"


@pytest.mark.parametrize(
    ("mib", "total_mib", "gigabytes"), [(71424, 143771, 71), (22528, 183359, 23), (46 << 10, 95 << 10, 48)]
)
def test_half_a_gigabyte_is_rounded_up(mib, total_mib, gigabytes):
    assert profile_name(replace(_PROFILE, memory_mib=mib), total_mib << 20) == f"1g.{gigabytes}gb"
