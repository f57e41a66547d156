"""Names and versions of devices."""

from __future__ import annotations

import pytest
from dra_driver_gpu.describe.devices import (
    MigName,
    cuda_version,
    mig_name,
    parse_gpu_name,
    parse_mig_name,
    parse_vfio_name,
)


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
    assert parse_mig_name(name) == MigName(3, 19, 4)
    assert parse_gpu_name(name) is parse_vfio_name(name) is None


def test_names_of_other_devices():
    assert (parse_gpu_name("gpu-12"), parse_vfio_name("gpu-vfio-3")) == (12, 3)
    assert parse_gpu_name("gpu-vfio-3") is parse_mig_name("gpu-12") is parse_vfio_name("gpu-12") is None


@pytest.mark.parametrize(("number", "version"), [(13000, "13.0.0"), (12040, "12.4.0"), (11080, "11.8.0")])
def test_the_version_of_cuda(number, version):
    assert cuda_version(number) == version


@pytest.mark.parametrize("compute", [None, 0, 6])
def test_a_compute_instance_is_part_of_the_name(compute):
    name = mig_name(3, "1c.3g.20gb", 9, 4, compute)
    assert parse_mig_name(name) == MigName(3, 9, 4, compute)


def test_the_suffix_of_a_profile_is_no_compute_instance():
    assert parse_mig_name(mig_name(0, "1g.5gb+me", 20, 0)) == MigName(0, 20, 0)
