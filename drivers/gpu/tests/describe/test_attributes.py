"""Versions as claims compare them."""

from __future__ import annotations

import pytest
from dra_driver_gpu.describe.attributes import cuda_version


@pytest.mark.parametrize(("number", "wanted"), [(13000, "13.0.0"), (12040, "12.4.0"), (11080, "11.8.0")])
def test_the_version_of_cuda(number, wanted):
    assert cuda_version(number) == wanted
