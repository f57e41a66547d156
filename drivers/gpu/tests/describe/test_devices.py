"""Names and versions of devices."""

from __future__ import annotations

import pytest
from dra_driver_gpu.describe.devices import cuda_version, mig_name


@pytest.mark.parametrize(
    ("profile", "name"),
    [
        ("1g.5gb", "gpu-3-mig-1g5gb-19-4"),
        ("1g.5gb+me", "gpu-3-mig-1g5gb-me-19-4"),
        ("1g.5gb+me.all", "gpu-3-mig-1g5gb-meall-19-4"),
        ("1g.24gb-me", "gpu-3-mig-1g24gb-me-19-4"),
    ],
)
def test_the_name_of_a_mig_device(profile, name):
    assert mig_name(3, profile, 19, 4) == name


@pytest.mark.parametrize(("number", "version"), [(13000, "13.0.0"), (12040, "12.4.0"), (11080, "11.8.0")])
def test_the_version_of_cuda(number, version):
    assert cuda_version(number) == version


def test_a_compute_instance_is_part_of_the_name():
    assert mig_name(3, "1c.3g.20gb", 9, 4, 6) == "gpu-3-mig-1c3g20gb-ci6-9-4"
