"""Names of devices."""

from __future__ import annotations

import pytest
from dra_driver_gpu.describe.names import MigName, mig_name, parse_gpu_name, parse_mig_name, parse_vfio_name


@pytest.mark.parametrize(
    ("profile", "name"),
    [
        ("1g.5gb", "gpu-3-mig-1g5gb-19-4"),
        ("1g.5gb+me", "gpu-3-mig-1g5gb-me-19-4"),
        ("1g.5gb+me.all", "gpu-3-mig-1g5gb-meall-19-4"),
        ("1g.24gb-me", "gpu-3-mig-1g24gb-me-19-4"),
    ],
)
def test_a_mig_device(profile, name):
    assert mig_name(3, profile, 19, 4) == name
    assert parse_mig_name(name) == MigName(3, 19, 4)
    assert parse_gpu_name(name) is parse_vfio_name(name) is None


def test_others():
    assert (parse_gpu_name("gpu-12"), parse_vfio_name("gpu-vfio-3")) == (12, 3)
    assert parse_gpu_name("gpu-vfio-3") is parse_mig_name("gpu-12") is parse_vfio_name("gpu-12") is None
