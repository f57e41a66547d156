"""Versions as claims compare them."""

from __future__ import annotations

import pytest
from dra_driver_gpu.describe.attributes import cuda_version, version


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("580.95.05", "580.95.5"), ("8.0", "8.0.0"), ("470", "470.0.0"), ("1.2.3.4", "1.2.3"), ("580.00.00", "580.0.0")],
)
def test_versions_have_three_parts_without_leading_zeros(text, wanted):
    assert version(text) == wanted


@pytest.mark.parametrize(("number", "wanted"), [(13000, "13.0.0"), (12040, "12.4.0"), (11080, "11.8.0")])
def test_the_version_of_cuda(number, wanted):
    assert cuda_version(number) == wanted
