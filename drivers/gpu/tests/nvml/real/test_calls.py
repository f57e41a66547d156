"""How answers of nvidia-ml-py are read."""

from __future__ import annotations

from dra_driver_gpu.nvml.real.calls import known, profile_name, text
from dra_driver_gpu.nvml.values import Brand


def test_unlisted_numbers_are_what_is_said():
    assert known(Brand, 5, Brand.UNKNOWN) is Brand.GEFORCE
    assert known(Brand, 55, Brand.UNKNOWN) is Brand.UNKNOWN


def test_texts_are_the_same_from_fields_and_results():
    assert text(b"GPU-1") == text("GPU-1") == "GPU-1"
    assert profile_name(b"MIG 1g.5gb+me") == profile_name(b"1g.5gb+me") == "1g.5gb+me"
